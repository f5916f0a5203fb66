"""What a visit of a page finds, in both schemes: one load answers all that tests ask of a page.

In: a page of the built site, opened in a browser. Out: a `Visit` for each scheme. Contrast is asked
once for each *text style* of the book: whatever it depends on (colours, grounds, size and weight)
is the same wherever a style stands, and asking axe of each text anew took most of the tests' time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The body's own name for a scheme, and the window in which its drawings are looked at.
SCHEMES = {"light": ("default", 1280), "dark": ("slate", 390)}
NARROW = (320, 640)  # a small phone; a laptop's window at twice its size
ASKED_OF_A_STYLE = 2  # texts of each style whose contrast axe works out
AXE: dict[str, Any] = {"preload": False, "resultTypes": ["violations"]}  # preloading requests CSS
ALL_BUT_CONTRAST = AXE | {
    "rules": {"color-contrast": {"enabled": False}, "target-size": {"enabled": True}}
}
CONTRAST_ALONE = AXE | {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
RUN_AXE = """([context, options]) => axe.run(context || document, options).then(
    found => found.violations.map(one => [one.id, one.nodes[0].html.slice(0, 160)]))"""
OPENED = """() => {
    document.querySelectorAll('details').forEach(one => { one.open = true });
    document.querySelectorAll('.pb-stage').forEach(one => one.removeAttribute('hidden'));
}"""
# Switches as a reader does, and ends what moves: the colours that transitions end in count.
SWITCHED = """scheme => {
    const body = document.body;
    if (body.dataset.mdColorScheme !== scheme)
        document.querySelector('[data-pb-scheme]:not([hidden])').click();
    body.getAnimations({subtree: true}).forEach(one => {
        try { one.finish() } catch { one.cancel() }
    });
    return body.dataset.mdColorScheme === scheme;
}"""
# A template's tenth row is as accessible as its third: axe asks each kind of row and of popover.
# Hundreds of claims differ only in which of a few parts they have: each part is asked three times.
# The row with a table's one stop for the Tab key stays: without it nothing there takes focus.
THINNED = """() => {
    const seen = {}, parts = {};
    document.querySelectorAll('.pb-one').forEach(one => {
        const inside = [one, ...one.querySelectorAll('*')].map(e => e.tagName + e.classList);
        const fresh = [...new Set(inside)].filter(part => (parts[part] || 0) < 3);
        fresh.forEach(part => { parts[part] = (parts[part] || 0) + 1 });
        if (!fresh.length && !one.querySelector('[tabindex="0"]')) one.remove();
    });
    document.querySelectorAll('[popover], tbody > tr').forEach(one => {
        const inside = [one, ...one.querySelectorAll('*')].map(e => e.tagName + e.classList);
        const kind = [...new Set(inside)].sort().join();
        seen[kind] = (seen[kind] || 0) + 1;
        if (seen[kind] > 3 && !one.querySelector('[tabindex="0"]')) one.remove();
    });
}"""
# Marks texts of styles that were asked less than `most` times; gives the styles that it marked.
# A style: the element's kind, its ink and letters, and every ground down to an opaque one.
MARKED = """([asked, most]) => {
    const count = {...asked}, marked = [];
    document.querySelectorAll('[data-contrast]').forEach(one => delete one.dataset.contrast);
    for (const one of document.querySelectorAll('body *')) {
        const has_text = [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!(has_text || one.matches('input, select, textarea')) || !one.checkVisibility())
            continue;
        const {color, fontSize, fontWeight, textShadow} = getComputedStyle(one);
        const parts = [one.tagName, one.getAttribute('class'), color, fontSize, fontWeight];
        parts.push(textShadow);
        for (let at = one; at; at = at.parentElement) {
            const {backgroundColor, backgroundImage, opacity, position} = getComputedStyle(at);
            parts.push(backgroundColor, backgroundImage, opacity, position);
            if (backgroundColor.startsWith('rgb(') && opacity === '1') break;
        }
        const style = parts.join('|');
        count[style] = (count[style] || 0) + 1;
        if (count[style] > most) continue;
        one.dataset.contrast = '';
        marked.push(style);
    }
    return marked;
}"""
# The numbers of figures and the stages of a page that paper lacks, but for those in a fold.
UNSEEN_ON_PAPER = """() => Array
    .from(document.querySelectorAll('.pb-numbers > .pb-inside, .pb-stage > *'))
    .filter(one => !one.closest('details:not([open], .pb-numbers)'))
    .filter(one => !one.getClientRects().length).map(one => one.outerHTML)"""
# What a reader could not read: words of a drawing that leave it, lie on others, or are crossed.
UNREADABLE = """() => {
    const found = [], slack = 0.6;
    document.querySelectorAll('.pb-drawing').forEach(svg => {
        for (let one = svg; one; one = one.parentElement) one.hidden = false;
        const frame = svg.getBoundingClientRect();
        const words = [...svg.querySelectorAll('text')]
            .map(text => [text.textContent, text.getBoundingClientRect()]);
        const lines = [...svg.querySelectorAll('line')].map(line => line.getBoundingClientRect());
        words.forEach(([said, box], at) => {
            if (lines.some(line => line.left < box.right - 1 && line.right > box.left + 1 &&
                    line.top < box.bottom - 3 && line.bottom > box.top + 3))
                found.push('a line crosses: ' + said);
            if (box.left < frame.left - slack || box.right > frame.right + slack ||
                box.top < frame.top - slack || box.bottom > frame.bottom + slack)
                found.push('leaves its drawing: ' + said);
            words.slice(at + 1).forEach(([other, near]) => {
                if (Math.min(box.right, near.right) - Math.max(box.left, near.left) > slack &&
                    Math.min(box.bottom, near.bottom) - Math.max(box.top, near.top) > 2)
                    found.push(said + ' lies on ' + other);
            });
        });
    });
    return found;
}"""
# What scrolls and can neither take the focus nor hold what takes it.
OUT_OF_REACH = """() => {
    document.querySelectorAll('details').forEach(one => { one.open = true });
    return [...document.querySelectorAll('article *')].filter(one => {
        const {overflowX, overflowY} = getComputedStyle(one);
        const scrolls = (way, inside, outside) => /auto|scroll/.test(way) && inside > outside + 1;
        return one.checkVisibility() && !one.querySelector('[tabindex="0"], a[href], button') &&
            (scrolls(overflowX, one.scrollWidth, one.clientWidth) ||
             scrolls(overflowY, one.scrollHeight, one.clientHeight)) &&
            one.tabIndex < 0;
    }).map(one => one.outerHTML.slice(0, 120));
}"""
SMALLEST_WORDS = """() => Math.min(...Array
    .from(document.querySelectorAll('.pb-drawing text'))
    .map(text => text.getBoundingClientRect().height).filter(height => height > 0))"""
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@dataclass
class Visit:
    """What was seen of one page in one scheme."""

    name: str
    too_wide: list[int] = field(default_factory=list)  # windows in which it scrolls sideways
    violations: list[tuple[str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    out_of_reach: list[str] = field(default_factory=list)  # of the keyboard, where it scrolls
    unseen_on_paper: list[str] = field(default_factory=list)
    smallest_words: float = float("inf")
    unreadable: list[str] = field(default_factory=list)  # words of drawings
    num_words: int = 0  # of drawings that were looked at
    num_styles: int = 0  # text styles whose contrast was asked here


class Visitor:
    """Goes through the pages of a site, and remembers of which text styles it has asked.

    Args:
        page: of a browser, listened to.
        complaints: what `listen` writes down of it.
    """

    def __init__(self, page: Page, complaints: list[str]) -> None:
        self.page, self.complaints = page, complaints
        self.asked: dict[str, dict[str, int]] = {scheme: defaultdict(int) for scheme in SCHEMES}

    def visit(self, path: Path, name: str) -> dict[str, Visit]:
        """Look at one page, by scheme; texts are looked at before any is taken out."""
        visits = {scheme: Visit(name) for scheme in SCHEMES}
        self._open(path)
        visits["light"].unseen_on_paper = self._unseen_on_paper()
        self.page.evaluate(OPENED)
        for scheme, visit in visits.items():
            self._switch(scheme)
            self._look_at_words(visit, scheme)
            visit.complaints = self._complained()
        self.page.evaluate(THINNED)
        self.page.evaluate(Axe().axe_script)
        for scheme, visit in reversed(visits.items()):
            self._switch(scheme)
            visit.violations = self._contrast(visit, scheme)
        visits["light"].violations += self.page.evaluate(RUN_AXE, [None, ALL_BUT_CONTRAST])
        visits["light"].complaints += self._complained()
        return visits

    def _open(self, path: Path) -> None:
        self._resize(SCHEMES["light"][1])
        self.page.goto(path.as_uri())

    def _resize(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 900})

    def _switch(self, scheme: str) -> None:
        own, width = SCHEMES[scheme]
        self._resize(width)
        assert self.page.evaluate(SWITCHED, own), f"{self.page.url} does not turn {scheme}"

    def _complained(self) -> list[str]:
        said = self.complaints.copy()
        self.complaints.clear()
        return said

    def _unseen_on_paper(self) -> list[str]:
        self.page.emulate_media(media="print")
        unseen: list[str] = self.page.evaluate(UNSEEN_ON_PAPER)
        self.page.emulate_media(media="screen")
        return unseen

    def _fits(self, width: int) -> bool:
        self._resize(width)
        return bool(self.page.evaluate(FITS))

    def _look_at_words(self, visit: Visit, scheme: str) -> None:
        visit.too_wide = [width for width in NARROW if not self._fits(width)]
        self._resize(SCHEMES[scheme][1])
        visit.smallest_words = self.page.evaluate(SMALLEST_WORDS)
        visit.unreadable = self.page.evaluate(UNREADABLE)
        visit.out_of_reach = self.page.evaluate(OUT_OF_REACH)
        visit.num_words = self.page.locator(".pb-drawing text").count()

    def _contrast(self, visit: Visit, scheme: str) -> list[tuple[str, str]]:
        asked = self.asked[scheme]
        styles = self.page.evaluate(MARKED, [asked, ASKED_OF_A_STYLE])
        visit.num_styles = len({style for style in styles if style not in asked})
        for style in styles:
            asked[style] += 1
        if not styles:
            return []
        found: list[tuple[str, str]] = self.page.evaluate(
            RUN_AXE, ["[data-contrast]", CONTRAST_ALONE]
        )
        return found

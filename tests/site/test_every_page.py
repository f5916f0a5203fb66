"""Every page of the real book, opened once in each scheme: quiet, within its window, accessible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.conftest import listen
from tests.site.html_reading import pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

AXE = {"preload": False, "resultTypes": ["violations"]}  # preloading asks for CSS by request
CONTRAST_ALONE = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
NARROW = (320, 640)  # a small phone; a laptop's window at twice its size
OPENED = """() => {
    document.querySelectorAll('details').forEach(one => { one.open = true });
    document.querySelectorAll('.pb-stage').forEach(one => one.removeAttribute('hidden'));
}"""
# A template's tenth row is as accessible as its third: axe asks each kind of row and of popover.
# Hundreds of claims differ only in which of a few parts they have: each part is asked three times.
THINNED = """() => {
    const seen = {}, parts = {};
    document.querySelectorAll('.pb-one, .pb-predicted').forEach(one => {
        const inside = [one, ...one.querySelectorAll('*')].map(e => e.tagName + e.classList);
        const fresh = [...new Set(inside)].filter(part => (parts[part] || 0) < 3);
        fresh.forEach(part => { parts[part] = (parts[part] || 0) + 1 });
        if (!fresh.length) one.remove();
    });
    document.querySelectorAll('[popover], tbody > tr').forEach(one => {
        const inside = [one, ...one.querySelectorAll('*')].map(e => e.tagName + e.classList);
        const kind = [...new Set(inside)].sort().join();
        seen[kind] = (seen[kind] || 0) + 1;
        if (seen[kind] > 3) one.remove();
    });
}"""
UNSEEN_ON_PAPER = """() => Array
    .from(document.querySelectorAll('.pb-inside, .pb-stage > *, .pb-answers, [data-after] > *'))
    .filter(one => !one.hidden && !one.getClientRects().length).map(one => one.outerHTML)"""
# What a reader could not read: words of a drawing that leave it, or lie on other words.
UNREADABLE = """() => {
    const found = [], slack = 0.6;
    document.querySelectorAll('.pb-drawing').forEach(svg => {
        for (let one = svg; one; one = one.parentElement) one.hidden = false;
        const frame = svg.getBoundingClientRect();
        const words = [...svg.querySelectorAll('text')]
            .map(text => [text.textContent, text.getBoundingClientRect()]);
        words.forEach(([said, box], at) => {
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
SMALLEST_WORDS = """() => Math.min(...Array
    .from(document.querySelectorAll('.pb-drawing text'))
    .map(text => text.getBoundingClientRect().height).filter(height => height > 0))"""


@dataclass
class Visit:
    """What was seen of one page in one scheme."""

    name: str
    too_wide: list[int] = field(default_factory=list)  # windows in which it scrolls sideways
    violations: list[tuple[str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    unseen_on_paper: list[str] = field(default_factory=list)
    smallest_words: float = float("inf")
    unreadable: list[str] = field(default_factory=list)  # words of drawings
    num_words: int = 0  # of drawings that were looked at


def _fits(page: Page, width: int) -> bool:
    page.set_viewport_size({"width": width, "height": 900})
    return bool(
        page.evaluate(
            "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    )


def _violations(page: Page, **options: Any) -> list[tuple[str, str]]:
    page.evaluate(THINNED)
    found = Axe().run(page, options=AXE | options).response["violations"]
    return [(one["id"], one["nodes"][0]["html"][:160]) for one in found]


def _visit(page: Page, path: Path, scheme: str) -> Visit:
    visit = Visit(path.name)
    page.set_viewport_size({"width": NARROW[0], "height": 900})
    page.goto(path.as_uri())
    page.evaluate(OPENED)
    visit.too_wide = [width for width in NARROW if not _fits(page, width)]
    page.set_viewport_size({"width": 390 if scheme == "dark" else 1280, "height": 900})
    visit.smallest_words = page.evaluate(SMALLEST_WORDS)
    visit.unreadable = page.evaluate(UNREADABLE)
    visit.num_words = page.locator(".pb-drawing text").count()
    if scheme == "dark":
        visit.violations = _violations(page, **CONTRAST_ALONE)
        return visit
    visit.violations = _violations(page)
    page.goto(path.as_uri())
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    visit.unseen_on_paper = page.evaluate(UNSEEN_ON_PAPER)
    page.emulate_media(media="screen")
    return visit


@pytest.fixture(scope="module", params=["light", "dark"])
def visits(
    request: pytest.FixtureRequest, built_site: Path, browser: Browser
) -> Iterator[list[Visit]]:
    """Each page of the book, looked at once."""
    context = browser.new_context(color_scheme=request.param)
    page = context.new_page()
    complaints: list[str] = []
    listen(page, complaints)
    found = []
    for path in pages(built_site):
        visit = _visit(page, path, request.param)
        visit.name = path.relative_to(built_site).as_posix()
        visit.complaints = complaints.copy()
        complaints.clear()
        found.append(visit)
    yield found
    context.close()


def test_the_whole_book_is_visited(visits: list[Visit]) -> None:
    modes = [visit.name for visit in visits if visit.name.count("/") == 2]
    assert len(modes) > 9
    assert {"index.html", "evidence.html", "topics/index.html"} <= {v.name for v in visits}


def test_no_page_complains_breaks_its_policy_or_asks_another_host(visits: list[Visit]) -> None:
    assert {v.name: v.complaints for v in visits if v.complaints} == {}


def test_no_page_scrolls_sideways_on_a_phone_or_at_twice_its_size(visits: list[Visit]) -> None:
    assert {v.name: v.too_wide for v in visits if v.too_wide} == {}


def test_no_page_breaks_a_rule_of_accessibility(visits: list[Visit]) -> None:
    assert {v.name: v.violations for v in visits if v.violations} == {}


def test_on_paper_nothing_stays_closed(visits: list[Visit]) -> None:
    assert {v.name: v.unseen_on_paper[:2] for v in visits if v.unseen_on_paper} == {}


def test_words_in_drawings_lie_on_nothing_and_stay_inside(visits: list[Visit]) -> None:
    assert {v.name: v.unreadable for v in visits if v.unreadable} == {}
    assert sum(v.num_words for v in visits) > 1000


def test_words_in_drawings_are_large_enough_to_read(visits: list[Visit]) -> None:
    assert {v.name: v.smallest_words for v in visits if v.smallest_words < 12} == {}
    assert any(v.smallest_words < float("inf") for v in visits)

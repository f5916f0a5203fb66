"""Pages of every kind: quiet, in their window, readable, printable, accessible.

axe looks at every page of the frozen book, which has every kind of page, item and figure. What
depends on the texts is looked at on real pages: one of each kind here, and all in `make soak`.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.site.html_reading import pages

pytestmark = pytest.mark.browser
TOPIC = "topics/large-models"
KINDS = (
    "*.html", f"{TOPIC}/*.html", "evidence/large_model.html", "machines/*.html", "plan/p*.html",
)  # fmt: skip
NARROW = (320, 640)  # a small phone; a laptop's window at twice its size
OPENED = """() => {
    document.querySelectorAll('.pb-stage').forEach(one => one.removeAttribute('name'));
    document.querySelectorAll('details').forEach(one => { one.open = true });
}"""
# The numbers of figures and the stages of a page that paper lacks, but for those in a fold.
UNSEEN_ON_PAPER = """() => Array
    .from(document.querySelectorAll('.pb-stage > .pb-inside'))
    .filter(one => !one.closest('details:not([open], .pb-stage)'))
    .filter(one => !one.getClientRects().length).map(one => one.outerHTML.slice(0, 120))"""
# Words of a drawing that leave it, lie on others, are crossed by a line, or are too small.
UNREADABLE = """() => {
    const found = [], slack = 0.6;
    document.querySelectorAll('.pb-drawing').forEach(svg => {
        for (let one = svg; one; one = one.parentElement) one.hidden = false;
        const frame = svg.getBoundingClientRect();
        const own = name => [...svg.querySelectorAll(name)]
            .filter(one => one.ownerSVGElement === svg);  // the played part is a copy
        const words = own('text')
            .map(text => [text.textContent, text.getBoundingClientRect()])
            .filter(([said, box]) => box.height);  // a play shows some of them later
        const lines = own('line').map(line => line.getBoundingClientRect());
        words.forEach(([said, box], at) => {
            if (box.height && box.height < 12) found.push('too small: ' + said);
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
OUT_OF_REACH = """() => [...document.querySelectorAll('article *')].filter(one => {
    const {overflowX, overflowY} = getComputedStyle(one);
    const scrolls = (way, inside, outside) => /auto|scroll/.test(way) && inside > outside + 1;
    return one.checkVisibility() && !one.querySelector('[tabindex="0"], a[href], button') &&
        (scrolls(overflowX, one.scrollWidth, one.clientWidth) ||
         scrolls(overflowY, one.scrollHeight, one.clientHeight)) &&
        one.tabIndex < 0;
}).map(one => one.outerHTML.slice(0, 120))"""
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
AXE = {
    "preload": False,
    "resultTypes": ["violations"],
    # The order of headings depends on the texts: test_built_html.py asks the real pages.
    "rules": {"target-size": {"enabled": True}, "heading-order": {"enabled": False}},
}
CONTRAST = AXE | {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
# Colours halfway between two states have a contrast that no reader stays with.
AT_REST = "*, *::before, *::after { transition: none !important; animation: none !important }"
SCHEMES = {"light": "default", "dark": "slate"}  # as the theme calls them


@pytest.fixture
def visited(built_site):
    """The pages that are opened: those at the root, a topic's, and one of each other kind."""
    found = {path for kind in KINDS for path in built_site.glob(kind)}
    return sorted(found - {built_site / "404.html"})  # a server's, at any depth


def _resize(page, width):
    page.set_viewport_size({"width": width, "height": 900})


def _problems(page):
    """What is wrong with the open page, by the question that was asked."""
    page.emulate_media(media="print")
    found = {"unseen on paper": page.evaluate(UNSEEN_ON_PAPER)}
    page.emulate_media(media="screen")
    page.evaluate(OPENED)
    for width in NARROW:
        _resize(page, width)
        if not page.evaluate(FITS):
            found[f"scrolls sideways at {width}"] = [page.url]
    for width in (390, 1280):
        _resize(page, width)
        found[f"unreadable at {width}"] = page.evaluate(UNREADABLE)
        found[f"out of reach at {width}"] = page.evaluate(OUT_OF_REACH)
    return {asked: one[:3] for asked, one in found.items() if one}


def test_a_page_of_every_kind_is_quiet_fits_and_can_be_read(visited, open_page):
    page = open_page("about:blank", viewport={"width": 1280, "height": 900})
    found, num_words = {}, 0
    for path in visited:
        page.goto(path.as_uri())
        if problems := _problems(page):
            found[path.name] = problems
        num_words += page.locator(".pb-drawing text").count()
    assert found == {}
    assert len(visited) > 15
    assert num_words > 500


def in_scheme(page, scheme):
    """Let the open page turn light or dark, as it does where a reader's system does."""
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function(
        "named => document.body.dataset.mdColorScheme === named", arg=SCHEMES[scheme]
    )


def violations(page, options):
    """The rules of axe that the open page at rest breaks, each with the first element."""
    page.add_style_tag(content=AT_REST)
    found = Axe().run(page, options=options).response["violations"]
    return [(one["id"], one["nodes"][0]["html"][:160]) for one in found]


def test_no_page_of_the_frozen_book_breaks_a_rule_of_accessibility(frozen_site, open_page):
    page, found = open_page("about:blank", reduced_motion="reduce"), {}
    for path in pages(frozen_site):
        page.goto(path.as_uri())
        page.evaluate(OPENED)
        for scheme, width, options in (("light", 1280, AXE), ("dark", 390, CONTRAST)):
            in_scheme(page, scheme)
            _resize(page, width)
            if broken := violations(page, options):
                found[f"{path.name}, {scheme}"] = broken
    assert found == {}

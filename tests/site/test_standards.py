"""What `make audit` asks of every page, as far as it can be asked without its tools; and the phone.

The newcomer's book has every kind of page, and of runs: measured here, elsewhere, and left out.
"""

from __future__ import annotations

import pytest

from tests.site.html_reading import Reading, Tag, pages, read

CONTROLS = frozenset(["button", "input", "meter", "output", "progress", "select", "textarea"])
VERBATIM = frozenset(["script", "style", "pre", "code"])
PHONE = {"width": 390, "height": 844}
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
WRAPPING = """() => [...document.querySelectorAll('.highlight code')]
    .map(one => getComputedStyle(one).whiteSpace)"""
# Headings and what a reader sees until the next one: whether it is more than a line that waits.
SECTIONS = """() => [...document.querySelectorAll('article h2')]
    .filter(one => one.checkVisibility({visibilityProperty: true})).map(heading => {
        let holds = false;
        for (let one = heading.nextElementSibling; one && one.tagName !== 'H2';
             one = one.nextElementSibling)
            holds = holds || (one.checkVisibility() && !one.matches('.pb-waits'));
        return [heading.textContent, holds];
    })"""
LISTED = """() => [...document.querySelectorAll('.md-nav--secondary a')]
    .filter(one => one.checkVisibility())
    .map(one => [one.hash, document.getElementById(one.hash.slice(1))
        .checkVisibility({visibilityProperty: true})])"""


@pytest.fixture(scope="module")
def readings(newcomers_site) -> dict[str, Reading]:
    return {one.relative_to(newcomers_site).as_posix(): read(one) for one in pages(newcomers_site)}


def _is_verbatim(ancestors: tuple[Tag, ...]) -> bool:
    return any(tag.name in VERBATIM for tag in ancestors)


def test_no_page_shows_a_backtick(readings):
    found = {
        page: shown
        for page, reading in readings.items()
        if (shown := [t for t, inside in reading.texts if "`" in t and not _is_verbatim(inside)])
    }
    assert found == {}
    assert len(readings) > 40


def test_a_label_holds_one_control_and_a_figure_begins_with_its_caption(newcomers_site):
    num_labels = num_captions = 0
    for page in pages(newcomers_site):
        html = page.read_text(encoding="utf-8")
        for label in html.split("<label")[1:]:
            inside = Reading()
            inside.feed("<label" + label.partition("</label>")[0])
            assert sum(tag.name in CONTROLS for tag in inside.tags) <= 1, (page, label[:80])
            num_labels += 1
        for figure in html.split("<figure")[1:]:
            inside = Reading()
            inside.feed("<figure" + figure.partition("</figure>")[0])
            assert inside.tags[1].name == "figcaption", (page, figure[:80])
            num_captions += 1
    assert num_labels > 100
    assert num_captions > 20


@pytest.mark.browser
def test_what_scrolls_on_a_phone_is_within_reach_of_the_keyboard(newcomers_site, open_page):
    page = open_page(newcomers_site / "index.html", viewport=PHONE)
    out_of_reach = {}
    for path in pages(newcomers_site):
        page.goto(path.as_uri())
        out_of_reach[path.relative_to(newcomers_site).as_posix()] = page.evaluate(OUT_OF_REACH)
    assert {name: found for name, found in out_of_reach.items() if found} == {}
    assert len(out_of_reach) > 40


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["challenge", "experiment"])
def test_lines_of_code_never_wrap(newcomers_site, open_page, mode):
    page = open_page(newcomers_site / "topics" / "ddp" / f"{mode}.html", viewport=PHONE)
    ways = page.evaluate(WRAPPING)
    assert ways
    assert set(ways) == {"pre"}


@pytest.mark.browser
def test_what_waits_for_an_answer_leaves_no_heading_alone(newcomers_site, open_page):
    page = open_page(newcomers_site / "topics" / "ddp" / "learn.html")
    before = page.evaluate(SECTIONS)
    assert before
    assert [heading for heading, holds in before if not holds] == []
    assert all(is_shown for _, is_shown in page.evaluate(LISTED))
    page.locator("[data-show-all]").check()
    after = page.evaluate(SECTIONS)
    assert len(after) > len(before)
    assert all(holds for _, holds in after)
    assert len(page.evaluate(LISTED)) > len(before)


@pytest.mark.browser
def test_a_slider_shows_no_position_until_a_reader_moves_it(newcomers_site, open_page):
    page = open_page(newcomers_site / "topics" / "ddp" / "learn.html")
    slider = page.locator(".pb-slider").first
    drawn = "one => getComputedStyle(one).appearance"
    assert slider.evaluate(drawn) == "none"
    slider.press("ArrowRight")
    page.locator(".pb-slider[data-set]").wait_for()  # by a script that comes meanwhile
    assert slider.evaluate(drawn) != "none"


# Pieces of names that a line end cuts; a name may break after a dot or an underscore.
CUT = """() => {
    const found = [];
    document.querySelectorAll('details').forEach(one => { one.open = true });
    document.querySelectorAll('article table code, article li code').forEach(code => {
        const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) {
            for (const word of texts.currentNode.data.matchAll(/[A-Za-z0-9]{2,12}/g)) {
                const range = document.createRange();
                range.setStart(texts.currentNode, word.index);
                range.setEnd(texts.currentNode, word.index + word[0].length);
                const boxes = [...range.getClientRects()].filter(box => box.width > 1);
                if (new Set(boxes.map(box => Math.round(box.top))).size > 1) found.push(word[0]);
            }
        }
    });
    return found;
}"""


@pytest.mark.browser
@pytest.mark.parametrize("where", ["topics/multi-gpu/cost", "topics/ddp/try", "evidence/at_scale"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_line_ends_inside_a_name(newcomers_site, open_page, where, width):
    view = {"width": width, "height": 900}
    page = open_page(newcomers_site / f"{where}.html", viewport=view)
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.browser
@pytest.mark.parametrize("where", ["topics/large-models/index", "topics/ddp/trace"])
def test_a_phone_without_a_script_scrolls_no_page_sideways(newcomers_site, open_page, where):
    page = open_page(newcomers_site / f"{where}.html", viewport=PHONE, java_script_enabled=False)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


SHIFTED = """() => new Promise(told => new PerformanceObserver(list => told(
    list.getEntries().reduce((sum, one) => sum + one.value, 0)
)).observe({type: 'layout-shift', buffered: true}) || setTimeout(() => told(0), 500))"""


@pytest.mark.browser
def test_recall_does_not_move_what_is_read_as_its_script_begins(newcomers_site, open_page):
    page = open_page(newcomers_site / "topics" / "ddp" / "recall.html", viewport=PHONE)
    page.locator(".pb-recall[data-ready]").wait_for(state="attached")
    assert page.evaluate(SHIFTED) < 0.1  # what Core Web Vitals call good

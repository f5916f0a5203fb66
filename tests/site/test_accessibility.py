"""axe finds nothing in the frozen book, which has every kind of page, item and figure.

What it sees in one element it sees in all alike, so the pages are those that together have every
kind of element. `make audit` asks every real page.
"""

import pytest

from tests.site.asking import CHALLENGE, ITEMS, RECALL, Asking
from tests.site.axe import AXE, OPENED, in_scheme, too_faint, violations
from tests.site.html_reading import of_each_kind, pages

pytestmark = pytest.mark.browser
# The order of headings depends on the texts: test_built_html.py asks the real pages.
NOT_HERE = ("color-contrast", "heading-order")
RULES = AXE | {"rules": AXE["rules"] | {rule: {"enabled": False} for rule in NOT_HERE}}


# In forced colours no ground is drawn: a shape needs a fill or a line that is not the page's own
# ground, and what is operated a border.
UNSEEN = """() => {
    const ground = getComputedStyle(document.body).backgroundColor;
    const isClear = colour => ["none", "rgba(0, 0, 0, 0)", ground].includes(colour);
    const shapes = "article :is(rect, path, line, circle, polyline, text)";
    const isLost = {
        [shapes]: ({ fill, stroke }) => isClear(fill) && isClear(stroke),
        "article :is(button:not(.md-code__button), select, .pb-button)": style =>
            !parseFloat(style.borderTopWidth) && !parseFloat(style.borderBottomWidth),
    };
    return Object.entries(isLost).flatMap(([kind, lost]) => [...document.querySelectorAll(kind)]
        .filter(one => one.checkVisibility() && !one.closest("defs") && lost(getComputedStyle(one)))
        .map(one => one.outerHTML.slice(0, 120)));
}"""


@pytest.fixture
def page(open_page):
    return open_page("about:blank", reduced_motion="reduce")


def _broken(page, known, within="body"):
    """What the open page breaks, light on a desk and dark on a phone."""
    found = {}
    for scheme, width in (("light", 1280), ("dark", 390)):
        page.set_viewport_size({"width": width, "height": 900})
        in_scheme(page, scheme)
        if scheme == "light":
            found["rules"] = violations(page, RULES, "html" if within == "body" else within)
        found[scheme] = too_faint(page, known, within)
    return {asked: one[:3] for asked, one in found.items() if one}


def test_no_page_breaks_a_rule(frozen_site, page):
    known, found = [], {}
    for path in of_each_kind(pages(frozen_site)):
        page.goto(path.as_uri())
        page.evaluate(OPENED)
        found[path.name] = _broken(page, known)
    assert {name: broken for name, broken in found.items() if broken} == {}
    assert len(found) > 10
    assert len(known) > 100


def test_in_forced_colours_every_shape_and_what_is_operated_is_seen(frozen_site, page):
    page.emulate_media(forced_colors="active")
    found = {}
    for path in of_each_kind(pages(frozen_site)):
        page.goto(path.as_uri())
        page.evaluate(OPENED)
        found[path.name] = page.evaluate(UNSEEN)
        assert page.evaluate("matchMedia('(forced-colors: active)').matches")
    assert {name: unseen[:3] for name, unseen in found.items() if unseen} == {}
    assert len(found) > 10


def test_no_state_of_an_item_breaks_a_rule(frozen_site, page):
    page.goto((frozen_site / CHALLENGE).as_uri())
    known = []
    for one in ITEMS:
        Asking(page, one.id).give(one.wrong)
    assert _broken(page, known, "article") == {}
    for one in ITEMS:
        if one.kind != "predict":
            Asking(page, one.id).press("Show the answer")
    assert _broken(page, known, "article") == {}
    page.goto((frozen_site / RECALL).as_uri())
    page.get_by_role("button", name="Retake what was wrong").click()
    shown = page.locator("[data-recall] .pb-question").filter(visible=True)
    shown.get_by_role("radio", name="sure", exact=True).check()
    assert _broken(page, known, "article") == {}
    shown.get_by_role("button", name="Show the answer").click()
    assert _broken(page, known, "article") == {}

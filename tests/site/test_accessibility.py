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

"""What one operates in figures: stages, and the values of charts."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.browser

TRACE = "topics/averaging/trace.html"
STAGES = ["stage-load", "stage-train"]


# --- stages


def test_a_link_to_a_stage_opens_it_and_closes_the_others(frozen_site, open_page):
    page = open_page((frozen_site / TRACE).as_uri() + "#stage-train")
    for wanted in ("stage-train", "stage-load"):
        page.evaluate(f"location.hash = '{wanted}'")
        page.locator(f"#{wanted} dl").wait_for(state="visible")
        assert [one for one in STAGES if page.locator(f"#{one} dl").is_visible()] == [wanted]


# --- values of charts


def _chart(page):
    return page.locator("#figure-curve svg").first


def _tip(page):
    return page.locator("[role=tooltip]")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_mark_tells_its_value_under_the_pointer_and_the_table_knows_it(
    frozen_site, open_page, width
):
    page = open_page(frozen_site / TRACE, viewport={"width": width, "height": 900})
    marks = _chart(page).locator("[data-say]")
    assert marks.count() > 3
    _chart(page).scroll_into_view_if_needed()
    table = re.sub(r"\s+", " ", page.locator("#figure-curve table").first.text_content())
    for mark in (marks.nth(0), marks.nth(3)):
        place = mark.bounding_box()
        page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        assert _tip(page).is_visible()
        told = _tip(page).inner_text()
        assert re.fullmatch(r"\w+, epoch \d+: (.+)", told)[1] in table
        box = _tip(page).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_a_chart_is_one_stop_of_the_keyboard_and_arrows_go_through_its_marks(
    frozen_site, open_page
):
    page = open_page(frozen_site / TRACE)
    marks = _chart(page).locator("[data-say]")
    says = [mark.get_attribute("data-say") for mark in marks.all()]
    marks.first.focus()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.closest('svg')") is None
    page.keyboard.press("Tab")
    heard = []
    for _ in says:
        focused = page.locator(":focus")
        assert focused.get_attribute("aria-label") == _tip(page).inner_text()
        heard.append(_tip(page).inner_text())
        page.keyboard.press("ArrowRight")
    assert heard == says
    page.keyboard.press("Tab")
    assert _chart(page).locator(":focus").count() == 0

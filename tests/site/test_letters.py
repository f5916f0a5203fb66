"""What the letters of formulas stand for, as a reader of the built site meets it."""

import pytest

pytestmark = pytest.mark.browser

COST = "topics/sharding/cost.html"
RANKS = "number of ranks"


def test_a_formula_that_is_pointed_at_or_focused_says_what_its_letters_stand_for(
    built_site, open_page
):
    page = open_page(built_site / COST)
    formula, box = page.locator(".md-content math").first, page.locator("#pb-letters")
    formula.hover()
    assert RANKS in box.inner_text()
    page.mouse.move(0, 0)
    box.wait_for(state="hidden")
    formula.focus()
    assert RANKS in box.inner_text()
    page.keyboard.press("Escape")
    box.wait_for(state="hidden")


def test_the_tab_key_stops_at_a_formula_only_where_a_letter_is_new(built_site, open_page):
    page = open_page(built_site / COST)
    stops, letters = page.locator("math[tabindex]"), page.locator("p.pb-letters > span")
    assert 0 < stops.count() <= letters.count() < page.locator("math").count()


def test_without_a_script_the_end_of_the_page_lists_its_letters(built_site, open_page):
    page = open_page(built_site / COST, java_script_enabled=False)
    listed = page.locator("p.pb-letters")
    assert listed.is_visible()
    assert RANKS in listed.inner_text()

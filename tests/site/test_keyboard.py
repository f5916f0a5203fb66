"""The site by keyboard: the menu on a phone, and the way past the header."""

from __future__ import annotations

import re

import pytest

from tests.conftest import wait_until

pytestmark = pytest.mark.browser

TRACE = "topics/averaging/trace.html"
FOCUSED = "document.activeElement"
PHONE = {"width": 320, "height": 640}


def tab_to(page, what):
    """Press Tab until an element has the focus."""
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate(f"{FOCUSED}.matches({what!r})"):
            return
    raise AssertionError(f"the keyboard does not reach {what}")


@pytest.mark.parametrize("where", [TRACE, "index.html"])
def test_the_menu_opens_and_closes_by_keyboard_on_a_phone(frozen_site, open_page, where):
    page = open_page(frozen_site / where, viewport=PHONE)
    menu = page.locator(".md-nav--primary").first
    in_view = "menu => menu.getBoundingClientRect().right > 0"
    assert not menu.evaluate(in_view)
    tab_to(page, "#__drawer")
    button = page.locator(".md-header__button[for=__drawer]")
    assert button.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
    page.keyboard.press("Space")
    wait_until(lambda: menu.evaluate(in_view))
    tab_to(page, ".md-nav--primary a")
    page.locator("#__drawer").focus()
    page.keyboard.press("Space")
    wait_until(lambda: not menu.evaluate(in_view))


def test_the_skip_link_leads_into_the_article(frozen_site, open_page):
    page = open_page(frozen_site / TRACE, viewport={"width": 1280, "height": 800})
    tab_to(page, ".md-skip")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate(f"{FOCUSED}.closest('article') !== null")


def test_the_skip_link_of_every_page_leads_to_its_title(built_site):
    led = {
        path.relative_to(built_site).as_posix(): (
            re.findall(r'href="#([^"]*)" class="md-skip"', html),
            re.findall(r'<h1[^>]* id="([^"]*)"', html),
        )
        for path in sorted(built_site.rglob("*.html"))
        for html in [path.read_text(encoding="utf-8")]
        if "md-skip" in html
    }
    assert len(led) > 40
    assert {name: one for name, one in led.items() if one[0] != one[1]} == {}

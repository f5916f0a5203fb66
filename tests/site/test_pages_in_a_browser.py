"""The site as a reader has it: in a browser, from disk, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

EXPERIMENT = "topics/sharding/experiment.html"
TRACE = "topics/averaging/trace.html"


def test_the_dark_scheme_follows_the_system(built_site, open_page):
    grounds = {}
    for scheme in ("light", "dark"):
        page = open_page(built_site / "index.html", color_scheme=scheme)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert grounds == {"light": "rgb(253, 253, 251)", "dark": "rgb(21, 23, 28)"}


def test_the_scheme_can_be_switched_by_the_reader(frozen_site, open_page):
    page = open_page(frozen_site / "index.html", color_scheme="light")
    page.locator("label[title='Switch to the dark scheme']").click()
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"


def test_without_scripts_answers_and_provenance_are_still_within_reach(frozen_site, open_page):
    page = open_page(frozen_site / EXPERIMENT, java_script_enabled=False)
    question = page.locator(".pb-question").first
    assert not question.locator(".pb-check").is_visible()
    question.locator(".pb-answer > summary").click()
    assert question.locator(".pb-answers").is_visible()
    value = page.locator(".pb-value").first
    popover = page.locator("#" + value.get_attribute("popovertarget"))
    value.click()
    assert popover.is_visible()


def test_provenance_opens_and_closes_with_the_keyboard(frozen_site, open_page):
    page = open_page(frozen_site / TRACE)
    value = page.locator(".pb-stage .pb-measured.pb-value").first
    value.focus()
    page.keyboard.press("Enter")
    popover = page.locator("#" + value.get_attribute("popovertarget"))
    popover.wait_for(state="visible")
    assert "reference-frozen" in popover.inner_text()
    page.keyboard.press("Escape")
    popover.wait_for(state="hidden")


def test_paper_shows_what_the_screen_keeps_closed(frozen_site, open_page):
    page = open_page(frozen_site / EXPERIMENT)
    hint = page.locator(".pb-details .pb-inside").first
    assert not hint.is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert not hint.is_visible()


def test_search_works_from_disk_under_the_policy(frozen_site, open_page):
    page = open_page(frozen_site / TRACE, viewport={"width": 1280, "height": 900})
    page.locator(".md-search__input").click()
    page.keyboard.type("gradients", delay=20)
    page.locator(".md-search-result__item").first.wait_for()
    assert page.locator(".md-search-result__link").first.get_attribute("href")


def test_paper_is_light_whatever_the_screen_is(frozen_site, open_page):
    page = open_page(frozen_site / TRACE, color_scheme="dark")
    ink = "getComputedStyle(document.querySelector('.md-content h1')).color"
    assert page.evaluate(ink) == "rgb(230, 228, 223)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(ink) == "rgb(31, 35, 40)"

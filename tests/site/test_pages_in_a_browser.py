"""The site as a reader has it: in a browser, from disk, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.site.html_reading import pages

pytestmark = pytest.mark.browser

EXPERIMENT = "topics/sharding/experiment.html"
TRACE = "topics/averaging/trace.html"
AXE = {"preload": False, "resultTypes": ["violations"]}  # preloading asks for CSS by request


@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_quietly_and_fits_its_window(built_site, open_page, width, scheme):
    page = open_page(
        built_site / "index.html",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
    )
    too_wide = []
    for path in pages(built_site):
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        room = page.evaluate("document.documentElement.clientWidth")
        if page.evaluate("document.documentElement.scrollWidth") > room:
            too_wide.append(path.relative_to(built_site).as_posix())
    assert not too_wide


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
    value = page.locator(".pb-table .pb-measured.pb-value").first
    value.focus()
    page.keyboard.press("Enter")
    popover = page.locator("#" + value.get_attribute("popovertarget"))
    assert popover.is_visible()
    assert "reference-frozen" in popover.inner_text()
    page.keyboard.press("Escape")
    assert not popover.is_visible()


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


@pytest.mark.parametrize("width", [1280, 390])
def test_text_in_charts_is_large_enough_to_read(frozen_site, open_page, width):
    page = open_page(frozen_site / "index.html", viewport={"width": width, "height": 900})
    heights = page.evaluate(
        """() => Array.from(document.querySelectorAll('.pb-figure svg text'))
            .map(text => text.getBoundingClientRect().height).filter(height => height > 0)"""
    )
    assert heights
    assert min(heights) >= 12


@pytest.mark.parametrize(
    ("scheme", "rules"), [("light", None), ("dark", {"type": "rule", "values": ["color-contrast"]})]
)
def test_no_page_breaks_a_rule_of_accessibility(built_site, open_page, scheme, rules):
    page = open_page(built_site / "index.html", color_scheme=scheme)
    options = AXE | ({"runOnly": rules} if rules else {})
    found = {}
    for path in pages(built_site):
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        results = Axe().run(page, options=options)
        if results.violations_count:
            found[path.name] = [
                (v["id"], v["nodes"][0]["html"][:160]) for v in results.response["violations"]
            ]
    assert not found

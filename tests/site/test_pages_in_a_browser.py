"""The site as a reader has it: in a browser, from disk, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import json

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.site.html_reading import pages

pytestmark = pytest.mark.browser

EXPERIMENT = "topics/sharding/experiment.html"
TRACE = "topics/averaging/trace.html"
AXE = {"preload": False, "resultTypes": ["violations"]}  # preloading asks for CSS by request


def _settled(page):
    page.wait_for_load_state("load")
    return page


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


def test_a_question_is_answered_with_the_keyboard_alone(frozen_site, open_page):
    page = _settled(open_page(frozen_site / TRACE))
    form = page.locator("form.pb-item").first
    form.locator("input").first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    assert form.locator("input").nth(1).is_checked()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    assert "pb-check" in page.evaluate("document.activeElement.className")
    assert form.locator("[role=status]").inner_text() == ""
    page.keyboard.press("Enter")
    assert form.locator("[role=status]").inner_text().startswith(("Right.", "Not so."))
    assert form.locator(".pb-option .pb-why").count() == form.locator(".pb-option").count()


def test_nothing_is_given_away_before_an_answer(frozen_site, open_page):
    page = _settled(open_page(frozen_site / EXPERIMENT))
    question = page.locator(".pb-question").first
    assert not question.locator(".pb-answer").is_visible()
    assert question.locator(".pb-option .pb-why").count() == 0
    question.locator(".pb-check").click()
    assert "first" in question.locator("[role=status]").inner_text()
    assert question.locator(".pb-option .pb-why").count() == 0


def test_a_commit_is_revealed_with_every_option_explained(frozen_site, open_page):
    page = _settled(open_page(frozen_site / EXPERIMENT))
    question = page.locator(".pb-question").first
    question.locator("input").nth(1).check()
    question.locator(".pb-check").click()
    assert question.locator("[role=status]").inner_text().startswith("Not so.")
    assert question.locator(".pb-option").nth(0).get_attribute("data-verdict") == "right"
    assert question.locator(".pb-option").nth(1).get_attribute("data-verdict") == "wrong"
    for option in question.locator(".pb-option").all():
        assert option.locator(".pb-why").is_visible()


def test_an_answer_is_there_again_after_a_reload_and_an_edit_touches_no_other(
    frozen_site, open_page
):
    page = _settled(open_page(frozen_site / TRACE))
    forms = page.locator("form.pb-item")
    for position in (1, 2):
        forms.nth(position).locator("input").first.check()
        forms.nth(position).locator(".pb-check").click()
    page.reload()
    assert "before" in forms.nth(1).locator("[role=status]").inner_text()
    key = "proofbook:item:" + forms.nth(1).get_attribute("data-item")
    page.evaluate(
        "([key, value]) => localStorage.setItem(key, value)",
        [key, json.dumps({"digest": "of an older text", "choice": 0})],
    )
    page.reload()
    assert "changed" in forms.nth(1).locator("[role=status]").inner_text()
    assert not forms.nth(1).locator("input").first.is_checked()
    assert "before" in forms.nth(2).locator("[role=status]").inner_text()


def test_a_mode_is_ticked_when_all_its_questions_are_answered(frozen_site, open_page):
    page = _settled(open_page(frozen_site / EXPERIMENT))
    tick = page.locator(".pb-modes a[aria-current] .pb-done")
    assert not tick.is_visible()
    for form in page.locator("form.pb-item").all():
        form.locator("input").first.check()
        form.locator(".pb-check").click()
    assert tick.is_visible()


def test_a_full_or_forbidden_store_loses_nothing_on_the_page(frozen_site, open_page):
    page = open_page("about:blank")
    page.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }"
    )
    page.goto((frozen_site / EXPERIMENT).as_uri())
    question = page.locator(".pb-question").first
    question.locator("input").first.check()
    question.locator(".pb-check").click()
    assert question.locator("[role=status]").inner_text().startswith("Right.")


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

"""The site as a reader has it: in a browser, from disk, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import pytest

from tests.popovers import popovers_of

pytestmark = pytest.mark.browser

EXPERIMENT = "topics/sharding/experiment.html"
TRACE = "topics/averaging/trace.html"
SCHEME = """() => [document.body.dataset.mdColorScheme,
    ...['color-scheme', 'theme-color'].map(
        name => document.querySelector(`[name=${name}]`).content)]"""
TOLD = """() => Object.fromEntries([...document.querySelectorAll('.pb-source dt')].reverse().map(
    name => [name.textContent, name.nextElementSibling.textContent]))"""


def test_the_scheme_can_be_switched_by_the_reader_and_stays(frozen_site, open_page):
    page = open_page(frozen_site / "index.html", color_scheme="light")
    page.locator("[title='Switch to the dark scheme']").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(SCHEME) == ["slate", "dark", "rgb(21, 23, 28)"]
    assert page.evaluate("document.activeElement.title") == "Switch to the light scheme"
    page.goto((frozen_site / TRACE).as_uri())
    assert page.evaluate(SCHEME)[0] == "slate"
    page.emulate_media(color_scheme="dark")
    page.locator("[title='Switch to the light scheme']").click()
    assert page.evaluate(SCHEME) == ["default", "light", "rgb(253, 253, 251)"]


def test_without_scripts_answers_and_provenance_are_still_within_reach(frozen_site, open_page):
    page = open_page(frozen_site / EXPERIMENT, java_script_enabled=False)
    question = page.locator(".pb-question").first
    assert not question.locator(".pb-check").is_visible()
    question.locator(".pb-answer > summary").click()
    assert question.locator(".pb-answers").is_visible()
    value = page.locator(".pb-value").first
    run = value.get_attribute("href").partition("#")[2]
    value.click()
    assert page.locator(f"#{run}").is_visible()
    assert page.url.endswith(f"#{run}")


def test_provenance_opens_and_closes_with_the_keyboard(frozen_site, open_page):
    page = open_page(frozen_site / TRACE)
    value = page.locator(".pb-stage .pb-measured.pb-value").first
    value.focus()
    page.keyboard.press("Enter")
    popover = page.locator(".pb-source")
    popover.wait_for(state="visible")
    told = page.evaluate(TOLD)
    assert told["from"].startswith("tiny_training · ")
    assert "reference-frozen" in told["on"]
    page.keyboard.press("Tab")  # its links come next
    assert page.evaluate("document.activeElement.closest('.pb-source') !== null")
    page.keyboard.press("Escape")
    popover.wait_for(state="hidden")
    assert page.locator(".pb-source").count() == 1


def test_every_value_of_a_page_opens_to_what_its_data_says(frozen_site, open_page):
    file = frozen_site / EXPERIMENT
    page = open_page(file)
    page.get_by_role("checkbox", name="show everything at once").check()
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    sources = popovers_of(file.read_text(encoding="utf-8"))
    seen = set()
    for link in page.locator("a[data-v]").all():
        number = int(link.get_attribute("data-v"))
        if number in seen or not link.is_visible():
            continue
        seen.add(number)
        link.evaluate("one => one.click()")
        told, source = page.evaluate(TOLD), sources[number]
        assert told.get("exactly") == source.exactly
        assert told.get("repeat", told.get("repeat its inputs")) == source.command
        name = "from" if source.source else "source" if source.kind == "cited" else "formula"
        assert told.get(name) == (source.source or source.formula)
        assert page.locator(".pb-source b").inner_text() == source.shown
    assert len(seen) > 10


def test_on_a_phone_a_source_is_a_sheet_that_scrolls_by_itself(frozen_site, open_page):
    page = open_page(frozen_site / TRACE, viewport={"width": 390, "height": 700})
    value = page.locator(".pb-stage .pb-measured.pb-value:visible").first
    value.evaluate("one => scrollTo(0, one.getBoundingClientRect().bottom + scrollY - innerHeight)")
    value.click()
    sheet = page.locator(".pb-source")
    box = sheet.bounding_box()
    assert (box["x"], box["width"]) == (0, 390)
    assert box["height"] <= 0.6 * 700 + 1
    assert box["y"] + box["height"] == 700
    number = value.bounding_box()
    assert 0 < number["y"] < box["y"] - number["height"]  # the sheet does not hide it
    sheet.get_by_role("button", name="Close").click()
    assert not sheet.is_visible()


def test_a_table_is_one_stop_of_the_tab_key_and_arrows_move_in_it(frozen_site, open_page):
    page = open_page(frozen_site / "evidence" / "tiny_memory.html")
    links = page.locator(".pb-runs").first.locator("a[href]")
    assert links.count() > 3
    stops = links.evaluate_all("all => all.filter(one => one.tabIndex >= 0).length")
    assert stops == 1
    links.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert links.nth(2).evaluate("one => one === document.activeElement && one.tabIndex === 0")
    page.keyboard.press("End")
    assert links.last.evaluate("one => one === document.activeElement")

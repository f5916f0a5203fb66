"""What waits for an answer: which question opens it, and the switch that opens everything."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

LEARN = "topics/averaging/learn.html"
LESSONS = [LEARN, "topics/averaging/why.html", "topics/sharding/deep.html"]


def test_each_line_that_waits_leads_to_the_question_that_opens_it(frozen_site, open_page):
    seen = 0
    for name in LESSONS:
        page = open_page(frozen_site / name)
        for line in page.locator(".pb-waits").filter(visible=True).all():
            waiting = line.locator("xpath=preceding-sibling::*[1]").get_attribute("data-after")
            link = line.get_by_role("link")
            assert link.get_attribute("href") == f"#item-{waiting}"
            asked = page.locator(f"#item-{waiting} .pb-asked legend").inner_text()
            said = link.inner_text().strip("“”").removesuffix(" …")
            assert " ".join(said.split()) in " ".join(asked.split())
            seen += 1
        page.close()
    assert seen >= 3


def test_the_button_of_a_line_shows_its_parts_and_no_others(frozen_site, open_page):
    page = open_page(frozen_site / LEARN)
    waiting = page.locator("[data-after]")
    line = page.locator(".pb-waits").filter(visible=True)
    page.keyboard.press("Tab")
    button = line.get_by_role("button", name="Show it")
    button.focus()
    assert button.bounding_box()["height"] >= 24
    top = page.locator("h2", has_text="The idea")
    page.keyboard.press("Enter")
    shown = waiting.filter(visible=True)
    assert shown.count() == line.count() + page.locator(".pb-waits").count() > 1
    assert page.evaluate("document.activeElement.matches('[data-after]')")
    assert 48 <= top.bounding_box()["y"] < page.viewport_size["height"]  # in view, below the header
    assert not line.count()
    assert not page.get_by_role("checkbox", name="show everything at once").is_checked()
    page.reload()
    assert line.count() == 1  # it was for this time


def test_a_reader_can_show_everything_and_the_browser_keeps_that(frozen_site, open_page):
    page = open_page(frozen_site / LEARN)
    switch = page.get_by_role("checkbox", name="show everything at once")
    waiting = page.locator("[data-after]")
    assert waiting.count() > 2
    assert not waiting.filter(visible=True).count()
    switch.focus()
    page.keyboard.press("Space")
    assert waiting.filter(visible=True).count() == waiting.count()
    assert not page.locator(".pb-waits").filter(visible=True).count()
    details = page.locator("details[data-after]").first
    assert details.get_attribute("open") is not None
    page.goto((frozen_site / LESSONS[1]).as_uri())  # another page
    assert switch.is_checked()
    assert page.locator("[data-after]").filter(visible=True).count()
    assert not page.locator(".pb-answer[open]").count()  # questions still ask
    switch.uncheck()
    assert not page.locator("[data-after]").filter(visible=True).count()
    page.reload()
    assert not switch.is_checked()

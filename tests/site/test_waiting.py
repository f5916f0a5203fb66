"""What waits for an answer: which question opens it, and the switch that opens everything."""

from __future__ import annotations

import json

import pytest

from tests.site.asking import CHALLENGE, RECALL
from tests.site.html_reading import pages, read

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


# The lines that one can see on a page, the parts for which each stands, and what follows it.
LINES = """() => {
    const seen = one => one.checkVisibility() && one.getBoundingClientRect().height > 0;
    const parts = [...document.querySelectorAll('[data-after][hidden]')].filter(
        one => one.parentElement.checkVisibility() && one.matches(':has(+ .pb-waits)'));
    const lines = [...document.querySelectorAll('.pb-waits')].filter(seen);
    return {
        parts: parts.map(one => one.dataset.after),
        told: lines.map(one => one.querySelector('a').hash.replace('#item-', '')),
        names: lines.map(one => one.querySelector('span').textContent.split(' · ')),
        own: parts.map(one => one.nextElementSibling.dataset.what),
        after: lines.map(one => {
            while ((one = one.nextElementSibling) && !seen(one));
            return one ? one.className : '';
        }),
    };
}"""


def test_one_line_stands_for_all_parts_side_by_side_and_says_what_they_are(built_site, open_page):
    page = open_page("about:blank")
    num_parts = num_lines = 0
    for path in pages(built_site):
        page.goto(path.as_uri())
        found = page.evaluate(LINES)
        told = [
            (question, name)
            for question, names in zip(found["told"], found["names"], strict=True)
            for name in names
        ]
        assert told == list(zip(found["parts"], found["own"], strict=True)), path
        assert all(name.strip() for _, name in told), path
        assert not [one for one in found["after"] if "pb-waits" in one], path
        num_parts += len(told)
        num_lines += len(found["told"])
    assert num_parts > num_lines + 20 > 80


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


def test_what_a_link_opened_is_named_by_no_line(frozen_site, open_page):
    page = open_page("about:blank")
    page.goto(f"{(frozen_site / LEARN).as_uri()}#check-yourself")
    names = page.locator(".pb-waits > span").filter(visible=True).all_inner_texts()
    assert names == ["The idea · The smallest real program", "Takeaway"]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_switch_looks_like_a_control(frozen_site, open_page, width):
    page = open_page(frozen_site / LEARN, viewport={"width": width, "height": 844})
    box = page.locator(".pb-show-all").bounding_box()
    assert box["height"] >= 24
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    page.mouse.click(box["x"] + box["width"] - 8, box["y"] + 8)  # anywhere on it
    assert page.locator("[data-after]").first.is_visible()


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


def test_a_link_to_a_question_that_waits_opens_what_holds_it(frozen_site, open_page):
    page = open_page("about:blank")
    page.goto(f"{(frozen_site / LEARN).as_uri()}#item-is-it-equal")
    assert page.locator("#item-is-it-equal").is_visible()
    assert not page.locator(".pb-insight").is_visible()
    assert page.locator(".pb-waits").filter(visible=True).count()


def test_a_link_to_a_heading_that_waits_opens_what_stands_under_it(built_site, open_page):
    cost = built_site / "topics/ddp/cost.html"
    page = open_page(cost)
    waiting = page.locator("h2 + [data-after], h3 + [data-after]")
    headings = page.locator(":is(h2, h3):has(+ [data-after])")
    assert waiting.count() == headings.count() > 1
    assert not waiting.filter(visible=True).count()
    assert not any(one.bounding_box()["height"] for one in headings.all())
    name = headings.first.get_attribute("id")
    page.evaluate("name => { location.hash = name }", name)
    waiting.first.wait_for()
    assert headings.first.bounding_box()["height"]
    assert not waiting.last.is_visible()
    page.reload()
    assert waiting.first.is_visible()


def test_without_storage_the_switch_works_for_its_page(frozen_site, open_page):
    page = open_page("about:blank")
    page.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }"
    )
    page.goto((frozen_site / LEARN).as_uri())
    page.get_by_role("checkbox", name="show everything at once").check()
    waiting = page.locator("[data-after]")
    assert waiting.filter(visible=True).count() == waiting.count()
    page.reload()
    assert not waiting.filter(visible=True).count()


def test_only_commitments_and_recall_ask_how_sure_one_is(frozen_site):
    asked = {}
    for name in (*LESSONS, CHALLENGE, RECALL, "topics/averaging/trace.html"):
        reading = read(frozen_site / name)
        form = None
        for tag in reading.tags:
            if "pb-item" in tag.classes:
                form = tag.attributes["data-as"]
                asked.setdefault(form, [])
                if "data-sure" in tag.attributes:
                    asked[form].append(name)
    assert all(asked.pop(kind) for kind in ("commit", "before", "recall"))
    assert asked.keys() == {"question", "challenge"}
    assert not any(asked.values())


def test_headings_that_wait_keep_their_order_and_are_in_no_list_of_contents(frozen_site, open_page):
    """Material's sidebar reads places of headings, and expects their order never to change."""
    page = open_page(frozen_site / LEARN, viewport={"width": 390, "height": 844})
    places = page.locator("h2[id]").evaluate_all("all => all.map(one => one.offsetTop)")
    assert places == sorted(places)
    assert all(places)
    contents = page.locator(".pb-contents")
    contents.locator("summary").click()
    entries = contents.locator("li")
    before = entries.filter(visible=True).count()
    assert 0 < before < entries.count() == len(places)
    page.get_by_role("checkbox", name="show everything at once").check()
    assert entries.filter(visible=True).count() == len(places)
    page.set_viewport_size({"width": 1280, "height": 844})
    assert not contents.is_visible()


def test_a_search_result_that_waits_is_opened_with_what_stands_under_it(built_site, open_page):
    index = json.loads((built_site / "search" / "search_index.json").read_text(encoding="utf-8"))
    hits = [one["location"] for one in index["docs"] if one["location"].startswith("topics/ddp/")]
    page = open_page("about:blank")
    num = 0
    for path in sorted((built_site / "topics" / "ddp").glob("*.html")):
        page.goto(path.as_uri())
        waiting = page.locator(":is(h2, h3):has(+ [data-after][hidden])")
        for name in waiting.evaluate_all("all => all.map(one => one.id)"):
            assert f"topics/ddp/{path.name}#{name}" in hits
            page.goto("about:blank")
            page.goto(f"{path.as_uri()}#{name}")
            heading = page.locator(f"#{name}")
            assert heading.locator("xpath=following-sibling::*[1]").is_visible()
            assert 0 <= heading.bounding_box()["y"] < page.viewport_size["height"]
            num += 1
    assert num > 10

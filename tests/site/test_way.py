"""The way of a reader in a browser: rail, tabs, what home offers to those who return, terms."""

import json
import re

import pytest

from tests.site.asking import CHALLENGE, ITEMS, Asking, kept

FIRST, SECOND = "topics/sharding/deep.html", "topics/averaging/learn.html"  # of the first hour
HREFS = "all => all.map(one => one.getAttribute('href'))"
LOOKS = """all => [...new Set(all.map(one => getComputedStyle(one)).filter(
    one => one.textDecorationLine !== "none").map(one => one.textDecorationStyle))]"""
GIVE_UP = """() => {
    const next = () => [...document.querySelectorAll("button")].find(
        one => one.checkVisibility() && one.innerText.trim() === "Show the answer");
    for (let one; (one = next()); ) one.click();
}"""


def _rail(page):
    return " ".join(page.locator(".pb-rail > p").first.inner_text().split())


def _open_topic(page):
    page.locator(".pb-rail summary").click()


def _give_up_all(page):
    page.get_by_role("button", name="Show the answer").first.wait_for()
    page.evaluate(GIVE_UP)


def _nexts(page):
    return {link.evaluate("one => one.href") for link in page.locator("[rel=next]").all()}


@pytest.mark.parametrize("has_script", [True, False])
def test_a_page_of_the_first_hour_has_one_next_and_lessons_stand_in_groups_that_open(
    frozen_site, open_page, has_script
):
    page = open_page(frozen_site / FIRST, java_script_enabled=has_script)
    assert _rail(page).startswith("First hour 1/2 · Next: ")
    assert _nexts(page) == {(frozen_site / SECOND).as_uri()}
    page.locator(".pb-rail [rel=next]").click()
    assert _rail(page) == "← First hour 2/2"
    assert _nexts(page) == set()
    groups = page.locator(".pb-lessons > div").all()
    assert not groups[0].is_visible()
    _open_topic(page)
    assert [" ".join(group.inner_text().split()) for group in groups] == [
        "First pass Learn: Two that agree Trace: One batch, followed Cost: What averaging costs "
        "Example: One model, two ways to hold it Try: Say it first Why: When to average",
        "Later Recall: Averaging again "
        "Summary: One sheet to print, which gives the results of the lessons away",
    ]
    page.locator(".pb-lessons").get_by_role("link", name="Trace").click()
    assert _rail(page).startswith("← Lesson 2/7: Trace · Next: ")
    assert _nexts(page) == {page.url.replace("trace", "cost")}


def test_a_click_beside_the_open_lessons_closes_them_and_so_does_escape(frozen_site, open_page):
    page = open_page(frozen_site / SECOND)
    for leave in (
        lambda: page.keyboard.press("Escape"), lambda: page.mouse.click(3, 500)
    ):  # fmt: skip
        _open_topic(page)
        assert page.locator(".pb-lessons").is_visible()
        leave()
        assert not page.locator(".pb-lessons").is_visible()


def test_on_a_phone_the_drawer_lists_the_lessons_of_the_topic_and_the_path(frozen_site, open_page):
    options = {"viewport": {"width": 390, "height": 800}, "java_script_enabled": False}
    page = open_page(frozen_site / SECOND, **options)
    page.locator(".md-header__button[for=__drawer]").click()
    drawer = page.locator(".md-nav--primary")
    titles = drawer.locator("a[href]:visible").evaluate_all(HREFS)
    listed = page.locator(".pb-lessons a").evaluate_all(HREFS)
    assert [one for one in titles if one in listed] == [one for one in listed if one in titles]
    assert {"trace.html", "cost.html", "recall.html", "summary.html"} <= {*titles}
    assert "../sharding/deep.html" in drawer.locator("a").evaluate_all(HREFS)


def test_marks_count_only_on_pages_that_were_opened(frozen_site, open_page):
    page = open_page(frozen_site / CHALLENGE)
    for one in ITEMS:
        Asking(page, one.id).give(one.right)
    page.evaluate("scrollTo(0, 0)")
    _open_topic(page)
    marks = page.locator(".pb-lessons .pb-progress")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert "✓" in marks.first.inner_text()
    page.evaluate("localStorage.removeItem('proofbook:pages'); proofbook.mark()")
    assert marks.all_inner_texts() == ["", ""]


def test_the_path_ticks_a_page_whose_questions_are_done_rightly_or_not(frozen_site, open_page):
    page = open_page(frozen_site / SECOND)
    page.goto((frozen_site / "topics/index.html").as_uri())
    row = page.locator(".pb-hour li", has=page.locator("a[href$='averaging/learn.html']"))
    assert "✓" not in row.inner_text()
    assert "opened" in row.inner_text()
    assert "done" not in page.locator(".pb-tally").inner_text()
    page.go_back()
    _give_up_all(page)
    page.goto((frozen_site / "topics/index.html").as_uri())
    assert "✓" in row.inner_text()
    assert "1 of 2 done" in page.locator(".pb-tally").inner_text()
    page.goto((frozen_site / CHALLENGE).as_uri())  # a prediction is among its questions
    _give_up_all(page)
    assert "/" in page.locator(".pb-lessons [aria-current] .pb-progress").text_content()


@pytest.mark.parametrize("has_script", [True, False])
def test_the_path_shows_the_lessons_of_the_topic_that_a_reader_chooses(
    frozen_site, open_page, has_script
):
    page = open_page(frozen_site / "topics/index.html", java_script_enabled=has_script)
    titles = page.locator(".pb-opened .pb-topic-title:visible")
    assert titles.all_inner_texts() == ["Sharding"]
    page.locator(".pb-map").get_by_role("link", name="Averaging").click()
    assert titles.all_inner_texts() == ["Averaging"]
    page.get_by_role("link", name="One batch, followed").click()
    assert page.url.endswith("averaging/trace.html")


def test_the_path_of_the_book_is_short_on_a_phone(built_site, open_page):
    page = open_page(built_site / "topics/index.html", viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollHeight") < 3200
    assert page.locator(".md-content a:visible").count() < 60
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        cut = ".pb-map li > *", "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
        assert page.locator(cut[0]).evaluate_all(cut[1]) == 0


def test_the_core_of_deep_leads_on_in_the_topic_and_each_page_beside_its_contents(
    built_site, open_page
):
    page = open_page(built_site / "topics/ddp/deep.html")
    listed = page.locator("#build-up ~ ol").first.locator("li > a").evaluate_all(HREFS)
    assert len(listed) == 5
    for number, href in enumerate(listed, 2):
        page.locator(".pb-rail [rel=next]").click()
        assert page.url.endswith(href)
        assert f"Deep {number}/6" in _rail(page)
        beside = page.locator(".md-sidebar--secondary a:visible")
        assert [*beside.evaluate_all(HREFS)][1:] == listed
    assert "Next: Problems with replicas" in _rail(page)
    page.goto((built_site / "topics/ddp/deep-myths.html").as_uri())
    assert "Deep, further" in _rail(page)


def test_home_leads_a_new_reader_to_the_first_hour_and_on_who_returns(frozen_site, open_page):
    home = (frozen_site / "index.html").as_uri()
    page = open_page(frozen_site / "index.html")
    back = page.locator("[data-back]")
    begin = back.locator("a").first
    assert begin.inner_text() == "Begin: the first hour"
    page.goto((frozen_site / SECOND).as_uri())
    page.goto(home)
    assert begin.inner_text() == "Begin: the first hour"  # who looked something up reads nothing
    page.goto((frozen_site / "topics/averaging/trace.html").as_uri())
    page.get_by_role("button", name="Show the answer").first.click()
    page.goto(home)
    assert begin.inner_text() == "Continue: One batch, followed (Averaging)"
    begin.click()
    assert page.url.endswith("topics/averaging/trace.html")


def test_what_is_due_today_is_one_queue_over_all_topics_ten_at_a_time(frozen_site, open_page):
    page = open_page(frozen_site / CHALLENGE)
    for one in ITEMS:  # of one topic; ten, of which Recall leaves one out
        Asking(page, one.id).give(one.right)
    page.goto((frozen_site / "topics/averaging/try.html").as_uri())
    _give_up_all(page)
    records = kept(page)
    for name, record in records.items():
        text = json.dumps(record | {"due": 1, "again": False})
        page.evaluate("([key, text]) => localStorage.setItem(key, text)",
                      [f"proofbook:item:{name}", text])  # fmt: skip
    page.goto((frozen_site / "index.html").as_uri())
    due = page.locator("[data-back] [data-items]:visible")
    (num,) = [int(due.inner_text().removeprefix("Due today: "))]
    due.click()
    said = page.locator("[data-recall-said]", has_text="1 of ")
    said.wait_for()
    asked = int(said.inner_text().split()[-1])
    assert 0 < asked < 10 < num
    lead = page.locator(".pb-actions a")
    while not lead.count():
        page.get_by_role("button", name="Show the answer").filter(visible=True).click()
        page.get_by_role("button", name=re.compile("Next question|Finish")).click()
    assert str(lead.get_attribute("href")).endswith(f"asking/recall.html#due={10 - asked}")
    lead.click()
    page.locator("[data-recall-said]", has_text=f"1 of {10 - asked}").wait_for()


@pytest.mark.parametrize("options", [{}, {"viewport": {"width": 390, "height": 800}}])
def test_a_term_opens_its_definition_where_it_stands(frozen_site, open_page, options):
    page = open_page(frozen_site / SECOND, **options)
    term = page.locator("a.pb-term:visible").first
    term.click()
    box = page.locator(".pb-source:popover-open")
    box.wait_for()
    assert page.url == (frozen_site / SECOND).as_uri()
    left, width = box.evaluate("one => [one.getBoundingClientRect().left, one.offsetWidth]")
    assert left >= 0
    assert left + width <= page.viewport_size["width"]
    leads = box.get_by_role("link", name="In the glossary").get_attribute("href")
    assert leads == term.evaluate("one => one.href")
    page.goto(leads)
    said = page.locator(":target + dd > p").first.inner_text()
    page.go_back()
    term.click()
    assert said in box.inner_text()


def test_a_line_leads_elsewhere_dots_open_here_and_settings_have_neither(built_site, open_page):
    page = open_page("about:blank")
    for path in ("topics/ddp/learn", "topics/ddp/cost", "evidence", "plan/llama_8b", "glossary"):
        page.goto((built_site / f"{path}.html").as_uri())
        opens = page.locator(".md-typeset :is(.pb-value, .pb-term)").evaluate_all(LOOKS)
        leads = page.locator(".md-typeset a:not(.pb-value, .pb-term)").evaluate_all(LOOKS)
        settings = page.locator(".pb-value.pb-given").evaluate_all(LOOKS)
        assert (opens or ["dotted"], leads, settings) == (["dotted"], ["solid"], []), path
        if path == "topics/ddp/learn":
            results = page.locator(".pb-value:not(.pb-given)").evaluate_all(LOOKS)
            assert results == ["dotted"]
            assert page.locator(".pb-value.pb-given").count()


def test_two_windows_do_not_answer_each_other_for_ever(frozen_site, open_page):
    page = open_page(frozen_site / "topics/sharding/deep-what-a-split-saves.html")
    other = page.context.new_page()
    other.goto((frozen_site / SECOND).as_uri())
    for one in (page, other):
        one.evaluate("num = 0; addEventListener('storage', () => num++)")
    page.get_by_role("button", name="Show the answer").first.click()
    page.wait_for_timeout(500)
    assert page.evaluate("num") == 0
    assert 0 < other.evaluate("num") < 5

"""Headings, statements and questions link to themselves, and such links work from anywhere."""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import urldefrag

import pytest

from generator.website.page_html import linked_headings
from tests.site.html_reading import pages, read

LEVELS = ("h1", "h2", "h3", "h4", "h5", "h6")
ASKED = "topics/ddp/learn.html"
MARK = "one => getComputedStyle(one, '::before').content"
HEIGHT = "() => document.documentElement.scrollHeight"


@pytest.fixture(scope="module")
def readings(built_site):
    return {path.relative_to(built_site).as_posix(): read(path) for path in pages(built_site)}


def _own_links(reading):
    """The ids to which links within headings lead."""
    return [
        within[-1].attributes["href"].removeprefix("#")
        for _, within in reading.texts
        if within[-1].name == "a" and any(one.name in LEVELS for one in within)
    ]


def test_each_heading_below_the_title_links_to_a_place_of_its_page(readings):
    without, num_linked = [], 0
    for page, reading in readings.items():
        for text, within in reading.texts:
            heading = [one for one in within if one.name in LEVELS[1:]]
            link = [one.attributes["href"] for one in within if one.name == "a"]
            if heading and not (link and link[0][0] == "#" and link[0][1:] in reading.ids):
                without.append((page, text))
            num_linked += bool(heading)
    assert without == []
    assert num_linked > 1000


def test_no_heading_skips_a_level(readings):
    for page, reading in readings.items():
        levels = [int(tag.name[1]) for tag in reading.tags if tag.name in LEVELS]
        assert all(lower <= upper + 1 for upper, lower in pairwise(levels)), page


def test_each_question_of_a_lesson_has_a_heading_that_links_to_it(readings):
    num_asked = 0
    for page, reading in readings.items():
        boxes = [tag.attributes["id"] for tag in reading.tags if "pb-question" in tag.classes]
        if not page.endswith("recall.html"):  # asks one at a time, and none has a place
            assert set(boxes) <= set(_own_links(reading)), page
            num_asked += len(boxes)
    assert num_asked > 150


def test_each_statement_has_a_heading_that_links_to_it(readings):
    reading = readings["retracted.html"]
    named = [
        tag.attributes["aria-labelledby"] for tag in reading.tags if "pb-retraction" in tag.classes
    ]
    assert len(named) > 20
    assert set(named) <= set(_own_links(reading))


def test_a_heading_without_an_id_gets_one_that_no_other_element_has():
    html = '<p id="seen"></p><h2 id="a">A</h2><h3>Seen</h3><h6 class="q"><a href="#x">Q</a></h6>'
    assert linked_headings(html) == (
        '<p id="seen"></p><h2 id="a"><a href="#a">A</a></h2>'
        '<h3 id="seen_1"><a href="#seen_1">Seen</a></h3><h4 class="q"><a href="#x">Q</a></h4>'
    )


@pytest.mark.browser
@pytest.mark.parametrize("script", [True, False])
def test_the_mark_of_a_heading_shows_under_pointer_and_focus_and_moves_nothing(
    built_site, open_page, script
):
    page = open_page(built_site / ASKED, java_script_enabled=script)
    link = page.locator("h2 > a").first
    before = link.bounding_box(), page.locator("article").bounding_box()
    assert link.evaluate(MARK) == "none"
    link.hover()
    assert "#" in link.evaluate(MARK)
    page.mouse.move(0, 0)
    page.keyboard.press("Tab")
    link.focus()
    assert "#" in link.evaluate(MARK)
    assert (link.bounding_box(), page.locator("article").bounding_box()) == before
    page.emulate_media(media="print")
    assert link.evaluate(MARK) == "none"


@pytest.mark.browser
def test_the_tab_key_passes_over_a_heading_only_where_the_sidebar_links_it(built_site, open_page):
    for name in (ASKED, "retracted.html", "glossary.html", "guide.html", "topics/ddp/deep.html"):
        page = open_page(built_site / name)
        for link in page.locator(":is(h2, h3)[id] > a[tabindex='-1']").filter(visible=True).all():
            listed = page.locator(f".md-nav--secondary [href='{link.get_attribute('href')}']")
            assert listed.filter(visible=True).count(), link.inner_text()
        page.close()


@pytest.mark.browser
def test_the_link_of_a_heading_is_the_address_of_its_section(built_site, open_page):
    page = open_page(built_site / ASKED)
    link = page.locator("h2 > a").filter(visible=True).last
    link.click()
    assert urldefrag(page.url).fragment == link.locator("..").get_attribute("id")


@pytest.mark.browser
@pytest.mark.parametrize("script", [True, False])
def test_a_link_to_a_question_of_a_part_that_waits_shows_the_question(
    built_site, open_page, script
):
    html = (built_site / ASKED).read_text(encoding="utf-8")
    questions = re.findall(r'class="pb-question" id="([^"]+)"', html)
    assert len(questions) == 4
    for name in questions:
        page = open_page(f"{(built_site / ASKED).as_uri()}#{name}", java_script_enabled=script)
        box = page.locator(f"#{name}")
        assert box.is_visible()
        assert 0 <= box.bounding_box()["y"] < 720

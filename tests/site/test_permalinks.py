"""Headings, statements and questions link to themselves, and such links work from anywhere."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.site.html_reading import pages, read

LEVELS = ("h1", "h2", "h3", "h4", "h5", "h6")
ASKED = "topics/ddp/learn.html"


@pytest.fixture(scope="module")
def readings(built_site):
    return {path.relative_to(built_site).as_posix(): read(path) for path in pages(built_site)}


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

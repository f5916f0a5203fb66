"""The first hour on its pages and on the Path, a page by hand in it, and the minutes of a page."""

from __future__ import annotations

import re

import pytest

from generator.pages.views import frame
from tests.generator.conftest import render

HAND = "---\ntitle: Your first run\ndescription: All of it\n---\n\n{}\n"
LAST = '  - {page: averaging/learn, says: "What do ranks average?"}\n'
ADDED = '  - {page: about, says: "Which program do you start?"}\n'


@pytest.fixture
def with_a_page_by_hand(copy):
    """The frozen book, whose first hour ends with a page of content/pages."""
    (copy.content / "pages").mkdir(exist_ok=True)
    path = copy.content / "pages" / "about.md"
    path.write_text(HAND.format("word " * frame.WORDS_PER_MINUTE * 5))
    copy.edit("site.yml", LAST, LAST + ADDED)
    return copy


def test_a_page_by_hand_is_on_the_way_and_the_path_adds_its_minutes(with_a_page_by_hand):
    pages = render(with_a_page_by_hand.load())
    rail = re.search(r'<nav class="pb-rail".*?</nav>', pages["about.md"], re.DOTALL)[0]
    assert 'href="topics/index.html#first-hour">First hour</a>' in rail
    assert ">3 of 3<" in rail
    assert "rel=" not in rail
    before = pages["topics/averaging/learn.md"]
    assert before.count('rel="next" href="../../about.html"') == 2
    path = pages["topics/index.md"].partition("All topics")[0]
    total, *each = map(int, re.findall(r">(\d+)</span>&nbsp;minutes", path))
    assert each[-1] == 5
    assert total == sum(each)


def test_a_step_of_the_first_hour_that_is_no_page_is_a_mistake(with_a_page_by_hand):
    with_a_page_by_hand.edit("site.yml", "page: about", "page: abuot")
    (error,) = with_a_page_by_hand.errors()
    assert "abuot" in error
    assert "did you mean 'about'" in error


def test_minutes_count_what_a_page_shows_its_questions_and_its_figures_to_operate():
    text = f"<p>{'word ' * frame.WORDS_PER_MINUTE * 3}</p>"
    folded = f'<details class="pb-details"><summary>More</summary>{text}</details>'
    states = f'<table class="pb-table pb-states pb-stack"><tr><td>{text}</td></tr></table>'
    assert frame.minutes(text, 0) == 3
    assert frame.minutes(text + folded + states, 2) == 3 + 2
    assert frame.minutes(f'{text}<figure data-play="x.js"></figure>', 0) == 3 + 1

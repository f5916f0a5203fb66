"""One frame for all pages: edges, headings and tables, on a desk, on a phone and on paper."""

import pytest

from tests.site.seen import DESK, PHONE, found_at

pytestmark = pytest.mark.browser
MOST_SECTIONS, MOST_COLUMNS = 7, 8
MOST_SCROLLED = 40  # tables of the whole book that scroll on a phone
BY_HAND = ("first-run.html", "gloo-to-gpus.html")  # have a section for each of their questions


@pytest.mark.parametrize(
    "wrong",
    [
        "words leave their cell",
        "a number and its head end apart",
        "a cell is cut",
        "words scroll",
        "names scroll with their numbers",
        "a table is cut and does not scroll",
    ],
)
def test_no_table_has(seen, wrong):
    assert found_at(seen, "tables", wrong) == {}


def test_few_tables_scroll_and_on_a_desk_wide_ones_alone(seen):
    desk, phone = (
        {name: one["looks"][width]["tables"] for name, one in seen.items()}
        for width in (DESK, PHONE)
    )
    narrow = {name for name, one in desk.items() if min(one["scrolls"], default=99) <= MOST_COLUMNS}
    assert narrow == set()
    assert 10 < sum(len(one["scrolls"]) for one in phone.values()) <= MOST_SCROLLED
    assert sum(one["cells"] for one in desk.values()) > 5_000


def test_all_pages_have_the_same_left_edge(seen):
    for width in (DESK, PHONE):
        lefts = [left for one in seen.values() for left in one["looks"][width]["edges"]]
        assert len(lefts) > 3 * len(seen)
        assert max(lefts) - min(lefts) <= 1


def test_a_page_has_at_most_three_levels_of_headings_and_seven_sections(seen):
    assert {name: one["levels"] for name, one in seen.items() if max(one["levels"]) > 3} == {}
    sections = {name: one["levels"].count(2) for name, one in seen.items() if name not in BY_HAND}
    assert {name: num for name, num in sections.items() if num > MOST_SECTIONS} == {}

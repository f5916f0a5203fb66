"""Pages at every width and on paper: one frame, tables and drawings readable, plays steady."""

import pytest

from tests.site.seen import DESK, LAPTOP, MOST_BY_AXE, PAPER, PHONE, SMALL, found_at, looks

pytestmark = pytest.mark.browser
MOST_SECTIONS, MOST_COLUMNS = 7, 8
MOST_SCROLLED = 40  # tables of the whole book that scroll on a phone
BY_HAND = ("first-run.html", "gloo-to-gpus.html")  # have a section for each of their questions
OF_TOPICS = ("cheat-sheet.html",)  # has one for each topic


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
    desk, phone = ([one["tables"] for one in looks(seen, width)] for width in (DESK, PHONE))
    assert [one for one in desk if min(one["scrolls"], default=99) <= MOST_COLUMNS] == []
    assert 10 < sum(len(one["scrolls"]) for one in phone) <= MOST_SCROLLED
    assert sum(one["cells"] for one in desk) > 5_000


def test_all_pages_have_the_same_left_edge(seen):
    for width in (DESK, PHONE):
        lefts = [left for one in looks(seen, width) for left in one["edges"]]
        assert len(lefts) > 400
        assert max(lefts) - min(lefts) <= 1


def test_a_page_has_at_most_three_levels_of_headings_and_seven_sections(seen):
    assert {name: one["levels"] for name, one in seen.items() if max(one["levels"]) > 3} == {}
    sections = {
        name: one["levels"].count(2)
        for name, one in seen.items()
        if name not in (*BY_HAND, *OF_TOPICS)
    }
    assert {name: num for name, num in sections.items() if num > MOST_SECTIONS} == {}


def test_each_page_is_quiet_and_asks_no_other_host(seen):
    assert {name: one["complaints"] for name, one in seen.items() if one["complaints"]} == {}
    assert len(seen) > 200


def test_no_page_is_wider_than_its_window_or_paper(seen):
    assert found_at(seen, "fits") == {}
    for width, least in ((DESK, 120), (PHONE, 120), (PAPER, 50), (LAPTOP, 30), (SMALL, 30)):
        assert sum(width in one["looks"] for one in seen.values()) > least, width


def test_axe_finds_nothing_on_a_phone_with_everything_open(seen):
    assert found_at(seen, "rules") == {}
    assert sum("rules" in one for one in looks(seen, PHONE)) == MOST_BY_AXE


def test_paper_has_the_stages_of_a_trace(seen):
    stages = {name: one for name, one in seen.items() if one["counts"]["stages"]}
    assert {name: one["unprinted"] for name, one in stages.items() if one["unprinted"]} == {}
    assert len(stages) > 4


def test_the_keyboard_reaches_what_scrolls(seen):
    assert found_at(seen, "unreachable") == {}


def test_words_of_a_drawing_stand_within_it_and_apart(seen):
    assert found_at(seen, "drawings", "wrong") == {}
    assert sum(one["drawings"]["words"] for one in looks(seen, DESK)) > 500


def test_each_play_opens_at_its_first_step_and_no_step_or_choice_moves_anything(seen):
    assert found_at(seen, "plays") == {}
    for width in (DESK, PHONE, SMALL):
        played = [one for one in seen.values() if "plays" in one["looks"].get(width, ())]
        assert sum(one["counts"]["plays"] for one in played) > 8, width


LINES = """all => all.filter(one => one.checkVisibility()).map(
    one => [one.textContent.trimEnd().length, one.offsetHeight])"""


def test_a_line_of_a_hundred_characters_stays_one_on_a_desk(built_site, open_page):
    page, longest = open_page("about:blank", viewport={"width": 1280, "height": 900}), 0
    for path in ("topics/tensor-parallelism/learn", "topics/ddp/experiment", "first-run"):
        page.goto((built_site / f"{path}.html").as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
        lines = page.locator(".pb-numbered > span").evaluate_all(LINES)
        single = min(height for length, height in lines if length)
        assert [length for length, height in lines if length <= 100 and height > single] == []
        longest = max(longest, *(length for length, _ in lines))
    assert longest > 95

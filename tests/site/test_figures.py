"""Pages at every width and on paper: quiet, within the window, drawings readable, plays steady."""

import pytest

from tests.site.seen import DESK, LAPTOP, PAPER, PHONE, SMALL, found_at

pytestmark = pytest.mark.browser


def test_each_page_is_quiet_and_asks_no_other_host(seen):
    assert {name: one["complaints"] for name, one in seen.items() if one["complaints"]} == {}
    assert len(seen) > 200


def test_no_page_is_wider_than_its_window_or_paper(seen):
    assert found_at(seen, "fits") == {}
    for width, least in ((DESK, 200), (PHONE, 200), (PAPER, 60), (LAPTOP, 30), (SMALL, 50)):
        assert sum(width in one["looks"] for one in seen.values()) > least, width


def test_paper_has_the_stages_of_a_trace(seen):
    stages = {name: one for name, one in seen.items() if one["counts"]["stages"]}
    assert {name: one["unprinted"] for name, one in stages.items() if one["unprinted"]} == {}
    assert len(stages) > 4


def test_the_keyboard_reaches_what_scrolls(seen):
    assert found_at(seen, "unreachable") == {}


def test_words_of_a_drawing_stand_within_it_and_apart(seen):
    assert found_at(seen, "drawings", "wrong") == {}
    assert sum(one["looks"][DESK]["drawings"]["words"] for one in seen.values()) > 500


def test_each_play_opens_at_its_first_step_and_no_step_or_choice_moves_anything(seen):
    assert found_at(seen, "plays") == {}
    played = [one for one in seen.values() if "plays" in one["looks"][DESK]]
    assert sum(one["counts"]["plays"] for one in played) > 40
    assert all("plays" in one["looks"][width] for one in played for width in (PHONE, SMALL))

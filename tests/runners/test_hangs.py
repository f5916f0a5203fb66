"""What the flight recorder finds in calls that differ."""

from __future__ import annotations

from runners.experiments.hangs import compare

SUM, SENT = "all_reduce of 4", "broadcast of 4"


def test_equal_calls_are_found_to_be_equal() -> None:
    found = compare([[SUM, SENT], [SUM, SENT]])
    assert (found.first_apart, found.waiting) == (0, ())


def test_the_first_call_that_differs_is_found_and_all_wait() -> None:
    found = compare([[SUM, SUM, SENT], [SUM, SENT, SUM]])
    assert (found.first_apart, found.waiting) == (2, (0, 1))
    assert found.in_words == (
        "as call 2 rank 0 called all_reduce of 4; rank 1 called broadcast of 4"
    )


def test_ranks_wait_in_a_call_that_others_never_made() -> None:
    found = compare([[SUM], [SUM, SUM], [SUM], [SUM, SUM]])
    assert (found.first_apart, found.waiting) == (2, (1, 3))
    assert "rank 0 and rank 2 made 1 calls" in found.in_words


def test_nothing_called_is_no_agreement() -> None:
    assert compare([[], []]).in_words == "no call was let through"

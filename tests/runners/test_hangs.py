"""Mistakes between ranks: what the flight recorder finds, and how each run really ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runners.experiments.hangs.flight_recorder import Call, compare
from runners.traces.records import Run

Measure = Callable[[str, str], Run]
SUM, SENT = Call("all_reduce", ((4,),)), Call("broadcast", ((4,),))


def measured(run: Run, name: str, rank: int = 0) -> object:
    return run.ranks[rank].measures[name]


def test_equal_calls_are_found_to_be_equal() -> None:
    found = compare([[SUM, SENT], [SUM, SENT]])
    assert (found.first_apart, found.waiting) == (0, ())


def test_the_first_call_that_differs_is_found_and_all_wait() -> None:
    found = compare([[SUM, SUM, SENT], [SUM, SENT, SUM]])
    assert (found.first_apart, found.waiting) == (2, (0, 1))
    assert found.in_words == (
        "as call 2 rank 0 called all_reduce of 4; rank 1 called broadcast of 4"
    )


def test_whoever_made_a_call_that_others_never_made_waits_for_them() -> None:
    found = compare([[SUM], [SUM, SUM], [SUM], [SUM, SUM]])
    assert (found.first_apart, found.waiting) == (2, (1, 3))
    assert "rank 0 and rank 2 made 1 calls" in found.in_words


def test_shapes_of_one_size_differ_all_the_same() -> None:
    assert compare([[Call("all_reduce", ((2, 6),))], [Call("all_reduce", ((3, 4),))]]).first_apart


def test_nothing_called_is_no_agreement() -> None:
    assert compare([[], []]).in_words == "no call was let through"


pytestmark = pytest.mark.ranks


def test_swapped_collectives_wait_for_each_other_until_the_groups_own_time_out(
    run: Measure,
) -> None:
    swapped = run("hangs", "order_swapped")
    assert swapped.status == "deadlocked"
    assert swapped.error is not None
    assert swapped.error.kind == "timed_out"
    assert "1000ms" in swapped.error.message
    assert measured(swapped, "waiting_ranks") == [0, 1]


def test_swapped_sums_of_one_shape_are_all_wrong_and_silent(run: Measure) -> None:
    alike = run("hangs", "order_swapped_alike")
    assert alike.status == "completed"
    assert measured(alike, "num_wrong") == 2 * 1000


def test_checked_calls_name_both_operations(run: Measure) -> None:
    checked = run("hangs", "order_swapped_checked")
    assert checked.status == "failed"
    assert checked.error is not None
    assert "Detected mismatch between collectives" in checked.error.message


def test_a_skipped_step_mixes_all_that_follow_and_hangs_in_the_last(run: Measure) -> None:
    skipped = run("hangs", "step_skipped")
    # Rank 0's step s meets rank 1's s + 1 from the skipped step on; its last meets none.
    right = [s == t for s, t in zip(range(8), [0, 1, 3, 4, 5, 6, 7], strict=False)]
    assert measured(skipped, "num_wrong_steps") == right.count(False)
    assert skipped.error is not None
    assert skipped.error.step == 7
    assert measured(skipped, "num_calls", 1) == [8, 7]
    assert measured(skipped, "waiting_ranks") == [0]


def test_a_longer_message_than_expected_ends_the_process_and_says_why(run: Measure) -> None:
    ended = run("hangs", "lengths_differ")
    assert ended.status == "died"
    assert ended.error is not None
    assert "SIGABRT" in ended.error.message
    assert "doesn't match expected size" in ended.error.message


def test_tables_of_other_shapes_are_added_in_the_order_of_memory(run: Measure) -> None:
    differ = run("hangs", "shapes_differ")
    flat = [[100 * (i // c) + i % c for i in range(12)] for c in (6, 4)]
    sums = [a + b for a, b in zip(*flat, strict=True)]
    assert measured(differ, "num_wrong") == sum(
        s != 2 * a for s, a in zip(sums, flat[0], strict=True)
    )
    assert measured(differ, "num_wrong", 1) == sum(
        s != 2 * b for s, b in zip(sums, flat[1], strict=True)
    )


def test_a_tensor_changed_in_flight_is_wrong_everywhere(run: Measure) -> None:
    changed = run("hangs", "changed_in_flight")
    assert [measured(changed, "num_wrong", r) for r in (0, 1)] == [100000, 100000]


@pytest.mark.parametrize(
    "name", ["order_same", "lengths_same", "shapes_same", "changed_after_wait"]
)
def test_a_repaired_run_completes_with_right_sums(run: Measure, name: str) -> None:
    repaired = run("hangs", name)
    assert repaired.status == "completed"
    assert [measured(repaired, "num_wrong", r) for r in (0, 1)] == [0, 0]


def test_ranks_that_agree_to_skip_lose_one_step_together(run: Measure) -> None:
    agreed = run("hangs", "step_agreed")
    assert [measured(agreed, "num_steps", r) for r in (0, 1)] == [7, 7]
    assert measured(agreed, "num_wrong_steps") == 0


def test_a_replica_with_more_batches_waits_unless_it_joins(run: Measure) -> None:
    uneven, joined = run("hangs", "batches_uneven"), run("hangs", "batches_joined")
    assert uneven.status == "deadlocked"
    assert measured(uneven, "waiting_ranks") == [0]
    assert [measured(joined, "num_steps", r) for r in (0, 1)] == [6, 4]
    assert joined.ranks[0].parameter_digest == joined.ranks[1].parameter_digest

"""Clocks of ranks: what messages to and fro tell of them, and what a timeline makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.meters.spans import on_one_clock
from runners.ranks.clocks import of_round_trip
from runners.traces.measured import RankClock
from runners.traces.outcome import Event
from runners.traces.records import Run

MICROSECOND = 1e-6
WAYS = st.integers(0, 10**9)


@given(st.integers(-(10**15), 10**15), WAYS, WAYS, WAYS)
def test_the_true_offset_lies_within_the_error_however_unequal_the_ways_are(
    offset: int, there: int, stay: int, back: int
) -> None:
    sent = 10**18
    received = sent + there + offset
    answered = received + stay
    error, found = of_round_trip(sent, received, answered, answered - offset + back)
    assert error == pytest.approx((there + back) / 2 / 1e9, abs=1e-9)
    assert abs(found - offset / 1e9) <= error + 2e-9


def clock(rank: int, offset_seconds: float, error_seconds: float) -> RankClock:
    return RankClock(rank=rank, offset_seconds=offset_seconds, error_seconds=error_seconds)


def test_a_timeline_is_corrected_where_an_offset_exceeds_its_error_and_nowhere_else() -> None:
    events = [Event(rank, "compute", "forward", 10_000, 20_000) for rank in range(3)]
    windows = dict.fromkeys(range(3), (5_000, 30_000))
    clocks = [
        clock(0, 0.0, 0.0),
        clock(1, 4 * MICROSECOND, 3 * MICROSECOND),
        clock(2, -2 * MICROSECOND, 3 * MICROSECOND),
    ]
    shifted, moved = on_one_clock(events, windows, clocks)
    assert [(e.start_ns, e.end_ns) for e in shifted] == [
        (10_000, 20_000),
        (6_000, 16_000),
        (10_000, 20_000),
    ]
    assert moved == {0: (5_000, 30_000), 1: (1_000, 26_000), 2: (5_000, 30_000)}


@pytest.mark.ranks
def test_ranks_of_one_machine_share_a_clock_to_within_the_stated_error(
    run: Callable[[str, str], Run],
) -> None:
    timing = run("batch_split", "split").timing
    assert timing.timeline
    assert [one.rank for one in timing.clocks] == [0, 1]
    assert (timing.clocks[0].offset_seconds, timing.clocks[0].error_seconds) == (0, 0)
    for one in timing.clocks[1:]:
        assert one.error_seconds > 0
        assert abs(one.offset_seconds) <= one.error_seconds

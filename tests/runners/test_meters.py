"""Who waits for whom in a timeline, against hand-made events."""

import pytest

from proofbook.runners.core.meters.activity import _merged
from proofbook.runners.core.meters.spans import split_waiting
from proofbook.runners.core.trace.outcome import Event

MS = 1_000_000


def test_work_within_longer_work_ends_no_stretch_of_it():
    assert _merged([(3 * MS, 4 * MS), (0, MS), (0, MS // 2)]) == [(0, MS), (3 * MS, 4 * MS)]


def test_an_update_is_drawn_where_the_end_of_its_collective_was_recorded_late():
    events = [
        Event(0, "compute", "backward", 0, 10 * MS),
        Event(0, "communication", "all_reduce", 10 * MS, 25 * MS),  # by a thread of its own
        Event(0, "compute", "optimizer", 20 * MS, 24 * MS),
        Event(1, "compute", "backward", 0, 10 * MS),
        Event(1, "communication", "all_reduce", 10 * MS, 20 * MS),
        Event(1, "compute", "optimizer", 20 * MS, 25 * MS),
    ]
    spans, _ = split_waiting(events, {0: (0, 25 * MS), 1: (0, 25 * MS)})
    for rank in (0, 1):
        named = [one.name for one in spans if one.rank == rank]
        assert named[:3] == ["backward", "all_reduce", "optimizer"]


def test_a_receiver_waits_until_its_sender_starts():
    events = [
        Event(0, "compute", "forward", 0, 60 * MS),
        Event(0, "communication", "send", 60 * MS, 80 * MS, peer=1),
        Event(1, "communication", "recv", 0, 80 * MS, peer=0),
        Event(1, "compute", "forward", 80 * MS, 100 * MS),
    ]
    spans, times = split_waiting(events, {0: (0, 80 * MS), 1: (0, 100 * MS)})
    assert [(s.activity, s.start_seconds, s.end_seconds) for s in spans if s.rank == 1] == [
        ("waiting", 0.0, 0.06),
        ("communication", 0.06, 0.08),
        ("compute", 0.08, 0.1),
    ]
    assert [t.waiting_share for t in times] == pytest.approx([0.2, 0.6])


def test_a_phase_that_waits_for_its_own_collective_does_not_compute():
    events = [
        Event(0, "compute", "backward", 0, 50 * MS),
        Event(0, "operation", "", 0, 20 * MS),
        Event(0, "communication", "all_reduce", 10 * MS, 50 * MS),
        Event(1, "compute", "backward", 0, 50 * MS),
        Event(1, "operation", "", 0, 40 * MS),
        Event(1, "communication", "all_reduce", 40 * MS, 50 * MS),
    ]
    _, times = split_waiting(events, {0: (0, 50 * MS), 1: (0, 50 * MS)})
    assert [t.compute_seconds for t in times] == pytest.approx([0.02, 0.04])
    assert [t.waiting_seconds for t in times] == pytest.approx([0.02, 0.0])
    assert [t.communication_seconds for t in times] == pytest.approx([0.01, 0.01])


def test_the_second_collective_of_ranks_meets_their_second_alone():
    events = [
        Event(0, "communication", "all_reduce", 0, 10 * MS),
        Event(1, "communication", "all_reduce", 4 * MS, 10 * MS),
        Event(0, "communication", "all_reduce", 20 * MS, 30 * MS),
        Event(1, "communication", "all_reduce", 27 * MS, 30 * MS),
    ]
    _, times = split_waiting(events, {0: (0, 30 * MS), 1: (0, 30 * MS)})
    assert [t.communication_seconds for t in times] == pytest.approx([0.009, 0.009])
    assert [t.waiting_share for t in times] == pytest.approx([0.7, 0.7])


def test_a_phase_within_a_phase_has_its_own_time_and_name():
    events = [
        Event(0, "compute", "backward", 0, 30 * MS),
        Event(0, "compute", "recompute", 10 * MS, 20 * MS),
        Event(0, "communication", "send", 30 * MS, 45 * MS, peer=1),
        Event(1, "communication", "recv", 40 * MS, 45 * MS, peer=0),
    ]
    spans, times = split_waiting(events, {0: (0, 45 * MS), 1: (40 * MS, 45 * MS)})
    own = [(one.name, one.start_seconds, one.end_seconds) for one in spans if one.rank == 0]
    assert own[:3] == [
        ("backward", 0.0, 0.01), ("recompute", 0.01, 0.02), ("backward", 0.02, 0.03)
    ]  # fmt: skip
    assert times[0].waiting_share == pytest.approx(10 / 45, abs=5e-6)

"""What meters make of storages, the kernel and events, and when a disagreement fails a run.

`make pythons` runs this file on the oldest and the newest Python that it finds.
"""

import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.meters.activity import _merged
from proofbook.runners.core.meters.kernel import (
    Growth,
    KernelPeak,
    MeterDisagreesError,
    disagreement,
)
from proofbook.runners.core.meters.memory import MemoryMeter
from proofbook.runners.core.meters.spans import split_waiting
from proofbook.runners.core.ranks import confirm
from proofbook.runners.core.trace.measured import Memory, MemoryClasses
from proofbook.runners.core.trace.outcome import Event
from proofbook.runners.core.trace.records import Failure
from proofbook.runners.session.progress import Progress
from tests.runners.experiments import hidden

MIB = 1 << 20
NO_BYTES = dict.fromkeys(
    [f"{c}_bytes" for c in ("gradients", "optimizer", "activations", "buckets", "buffers")], 0
)


def memory(peak, buckets=0):
    classes = {"parameters_bytes": peak - buckets, **NO_BYTES, "buckets_bytes": buckets}
    return Memory(
        peak_bytes=peak, peak_phase="backward", at_peak=classes, largest=classes,
        phases={"backward": peak}, kernel_peak_bytes=None,
    )  # fmt: skip


def growth(peak, *, file=0, free=0, reused=0):
    return Growth(peak, "forward", file, free, reused)


@pytest.mark.parametrize(
    ("seen", "buckets", "unexplained"),
    [
        (growth(10 * MIB), 0, 0),
        (growth(40 * MIB, file=30 * MIB), 0, 0),  # code
        (growth(18 * MIB, free=8 * MIB), 0, 0),  # a free heap
        (growth(7 * MIB, reused=3 * MIB), 0, 0),
        (growth(6 * MIB), 4 * MIB, 0),  # not yet touched
        (growth(14 * MIB), 0, 4 * MIB),
        (growth(44 * MIB, file=30 * MIB), 0, 4 * MIB),
        (growth(7 * MIB, file=30 * MIB, free=8 * MIB), 0, 3 * MIB),
    ],
)
def test_what_nothing_beside_tensors_explains_is_a_disagreement_in_one_line(
    seen, buckets, unexplained
):
    said = disagreement(memory(10 * MIB, buckets), seen, 10)
    if not unexplained:
        assert said is None
        return
    assert said.startswith(f"meter {10 * MIB} bytes in backward, kernel {seen.peak_bytes} in forw")
    assert said.endswith(f"unexplained: {unexplained}")
    assert len(said.splitlines()) == 1
    assert len(said) < 290  # a failure keeps that much of a message


def test_the_peak_of_the_kernel_is_what_was_held_at_once_and_not_what_is_left():
    peak = KernelPeak()
    held = bytearray(b"1") * (64 * MIB)
    del held
    assert peak.bytes() >= 63 * MIB  # a thread counts some pages later


def test_memory_that_a_process_takes_once_is_no_disagreement(run):
    measured = run("hidden", "loads")
    assert measured.status == "completed", measured.error
    assert measured.ranks[0].memory.kernel_peak_bytes > hidden.ONCE_BYTES  # the kernel counted it


@pytest.fixture(scope="module")
def _another():
    with Launcher("cpu", quiet_seconds=3.0) as started:
        yield started


@pytest.fixture
def one_other_launcher(_another, monkeypatch):
    """A second launcher, which measures again for several tests, and so loads torch once."""
    monkeypatch.setattr(measure, "Launcher", lambda *_: nullcontext(_another))


@pytest.mark.usefixtures("one_other_launcher")
@pytest.mark.parametrize("name", ["maps", "arrays", "blinded"])
def test_memory_that_the_meter_misses_fails_the_run(run, name):
    failed = run("hidden", name)
    assert failed.status == "failed"
    assert failed.error.rank == failed.world_size - 1
    assert failed.error.message.startswith("MeterDisagreesError: meter ")
    left = int(re.search(r"unexplained: (\d+), in 4 calls", failed.error.message).group(1))
    assert left == pytest.approx(hidden.MODEL_BYTES, rel=0.4)


def test_a_disagreement_that_another_forkserver_does_not_show_fails_no_run(
    launcher, monkeypatch, capsys
):
    ran = launcher.run_pass
    failure = Failure(kind="exception", message="MeterDisagreesError: 1", rank=0, phase="build")
    monkeypatch.setattr(launcher, "run_pass", lambda *a: replace(ran(*a), root_cause=failure))
    run = measure.measure_run(launcher, find("hidden"), "honest", Progress())
    assert run.status == "completed", run.error
    assert run.ranks[0].memory.kernel_peak_bytes
    assert "honest once more: MeterDisagreesError: 1" in capsys.readouterr().err


def test_ranks_that_stand_still_before_their_experiment_began_get_one_more_try(
    launcher, monkeypatch, capsys
):
    ran = launcher.run_pass
    failure = Failure(kind="hang", message="rank 0 stood still in warm_up", rank=0, phase="warm_up")
    hung = {"root_cause": failure, "not_measured": "before its experiment began"}
    monkeypatch.setattr(launcher, "run_pass", lambda *a: replace(ran(*a), **hung))
    run = measure.measure_run(launcher, find("hidden"), "honest", Progress())
    assert run.status == "completed", run.error
    assert "honest once more: rank 0 stood still in warm_up" in capsys.readouterr().err


def rank_with(fault):
    given = {"is_metered": True, "has_lost_peers": False, "largest_collective_bytes": 0}
    return SimpleNamespace(memory_fault=fault, world_size=2, **given)


@pytest.mark.parametrize(
    ("fault", "again", "maxima"),
    [
        (None, [None, None], [1, 1, 0]),  # beside the peer that has one
        ("fault", [None], [1, 0]),
        ("fault", ["fault"] * confirm.MOST_FURTHER_CALLS, [1] * (1 + confirm.MOST_FURTHER_CALLS)),
    ],
)
def test_all_ranks_call_again_until_none_has_a_fault_and_one_of_every_call_fails_the_run(
    fault, again, maxima, monkeypatch
):
    left, known = iter(again), iter(maxima)
    monkeypatch.setattr(confirm, "_call_again", lambda *_: rank_with(next(left)))
    monkeypatch.setattr(confirm, "_max_over_ranks", lambda rank, *values: [next(known), 0])
    stays = pytest.raises(MeterDisagreesError, match="in 4 calls")
    with stays if again[-1] else nullcontext():
        confirm.confirm_memory(rank_with(fault), "train")
    assert [*left] == [*known] == []


def test_a_replay_keeps_the_largest_of_each_class_and_phase_and_not_the_last():
    with MemoryMeter() as meter:
        meter.enter("forward")
        weights, inside, more = torch.ones(1000), torch.ones(300), torch.ones(200)
        meter.name([weights], "parameters")
        meter.name([weights.view(10, 100)], "activations")  # a view is the same storage
        del inside, more
        meter.enter("backward")
        first = torch.ones(250)
        meter.name([first], "gradients")
        del first
        second = torch.ones(100)
        meter.name([second], "gradients")
    memory = meter.memory(None)
    zero = dict.fromkeys(MemoryClasses.model_fields, 0)
    assert memory.phases == {"forward": 6000, "backward": 5000}
    assert (memory.peak_bytes, memory.peak_phase) == (6000, "forward")
    at_peak = zero | {"parameters_bytes": 4000, "activations_bytes": 2000}
    assert memory.at_peak == MemoryClasses(**at_peak)
    assert memory.largest == MemoryClasses(**at_peak | {"gradients_bytes": 1000})
    assert meter.num_storages == 3


def test_a_storage_that_grows_counts_what_it_grew_by():
    with MemoryMeter() as meter:
        held = torch.ones(10)
        held.untyped_storage().resize_(400)
        held.untyped_storage().resize_(0)
        other = torch.ones(20)
    assert meter.memory(None).peak_bytes == 400
    assert other.nbytes == 80


MS = 1_000_000


def events(*rows):
    """Of a rank, its activity, its name, and milliseconds from and to; and its peer."""
    return [
        Event(rank, activity, name, start * MS, end * MS, *peer)
        for rank, activity, name, start, end, *peer in rows
    ]


def test_work_within_longer_work_ends_no_stretch_of_it():
    assert _merged([(3 * MS, 4 * MS), (0, MS), (0, MS // 2)]) == [(0, MS), (3 * MS, 4 * MS)]


def test_an_update_is_drawn_where_the_end_of_its_collective_was_recorded_late():
    found = events(
        (0, "compute", "backward", 0, 10),
        (0, "communication", "all_reduce", 10, 25),  # by a thread of its own
        (0, "compute", "optimizer", 20, 24),
        (1, "compute", "backward", 0, 10),
        (1, "communication", "all_reduce", 10, 20),
        (1, "compute", "optimizer", 20, 25),
    )
    spans, _ = split_waiting(found, {0: (0, 25 * MS), 1: (0, 25 * MS)})
    for rank in (0, 1):
        named = [one.name for one in spans if one.rank == rank]
        assert named[:3] == ["backward", "all_reduce", "optimizer"]


SENT = events((0, "communication", "send", 60, 80, 1), (1, "communication", "recv", 0, 80, 0))


@pytest.mark.parametrize(
    ("found", "ends", "computed", "waited", "communicated"),  # milliseconds of each rank
    [
        # A receiver waits until its sender starts.
        ([*events((0, "compute", "forward", 0, 60), (1, "compute", "forward", 80, 100)), *SENT],
         (80, 100), (60, 20), (20, 60), (20, 20)),
        # A phase that waits for its own collective does not compute.
        (events(
            (0, "compute", "backward", 0, 50),
            (0, "operation", "", 0, 20),
            (0, "communication", "all_reduce", 10, 50),
            (1, "compute", "backward", 0, 50),
            (1, "operation", "", 0, 40),
            (1, "communication", "all_reduce", 40, 50),
         ), (50, 50), (20, 40), (20, 0), (10, 10)),
        # The second collective of ranks meets their second alone.
        (events(
            (0, "communication", "all_reduce", 0, 10),
            (1, "communication", "all_reduce", 4, 10),
            (0, "communication", "all_reduce", 20, 30),
            (1, "communication", "all_reduce", 27, 30),
         ), (30, 30), (0, 0), (21, 21), (9, 9)),
    ],
)  # fmt: skip
def test_a_rank_waits_until_all_that_it_communicates_with_have_started(
    found, ends, computed, waited, communicated
):
    _, times = split_waiting(found, {rank: (0, end * MS) for rank, end in enumerate(ends)})
    for rank, one in enumerate(times):
        parts = one.compute_seconds, one.waiting_seconds, one.communication_seconds
        expected = [each[rank] / 1000 for each in (computed, waited, communicated)]
        assert parts == pytest.approx(expected)


def test_a_phase_within_a_phase_has_its_own_time_and_name():
    found = events(
        (0, "compute", "backward", 0, 30),
        (0, "compute", "recompute", 10, 20),
        (0, "communication", "send", 30, 45, 1),
        (1, "communication", "recv", 40, 45, 0),
    )
    spans, times = split_waiting(found, {0: (0, 45 * MS), 1: (40 * MS, 45 * MS)})
    own = [(one.name, one.start_seconds, one.end_seconds) for one in spans if one.rank == 0]
    assert own[:3] == [
        ("backward", 0.0, 0.01), ("recompute", 0.01, 0.02), ("backward", 0.02, 0.03)
    ]  # fmt: skip
    assert times[0].waiting_share == pytest.approx(10 / 45, abs=5e-6)

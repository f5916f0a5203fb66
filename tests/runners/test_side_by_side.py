"""Passes that time nothing run at once; whatever takes a time runs alone."""

from pathlib import Path
from threading import Barrier, Lock

import pytest

from proofbook.runners.commands.side_by_side import SideBySide
from proofbook.runners.core.declared.experiment import Declaration, Experiment
from proofbook.runners.core.measuring.gather import gather
from proofbook.runners.core.measuring.launch import Launcher, PassResult, Place
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import Failure
from proofbook.runners.session.pending import Pending

SECONDS = 20  # that two passes wait for each other at most


class Passes:
    """In place of ranks: what is asked of launchers, and how many passes went on at once."""

    def __init__(self):
        self.log, self.now, self.lock, self.both = [], 0, Lock(), Barrier(2)
        self.outcomes = {}  # of a run, what its rank recorded

    def run(self, experiment, run, own):
        with self.lock:
            self.now += 1
            before = self.now
        if run.startswith("at_once"):
            self.both.wait(SECONDS)
        with self.lock:
            self.log.append((run, own, max(before, self.now)))
            self.now -= 1
        outcome = self.outcomes.get((run, own), RankOutcome(rank=0))
        return PassResult([outcome], outcome.failure, [], 0.5)


@pytest.fixture
def passes(monkeypatch):
    recorded = Passes()

    def run_pass(launcher, *given):
        return recorded.run(*given)

    monkeypatch.setattr(Launcher, "run_pass", run_pass)
    monkeypatch.setattr(Launcher, "prepare", lambda *_: None)
    monkeypatch.setattr(machine, "num_cores", lambda: 2)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 16 << 30)
    return recorded


def measured(passes, last=None, **runs):
    """Run ahead, then ask for all passes in their order; those that ran only when asked."""
    declared = {name: Declaration("train", **more) for name, more in runs.items()}
    experiment = Experiment("tried", "Does it?", declared, Path("tried.py"))
    with SideBySide() as launcher:
        launcher.run_ahead(Pending(experiment, "missing", tuple(runs)), last or {})
        num_ahead = len(passes.log)
        for name, declaration in declared.items():
            for own in declaration.passes:
                launcher.run_pass(experiment, name, own)
    assert all(at_once == 1 for _, _, at_once in passes.log[num_ahead:])
    return [(run, own) for run, own, _ in passes.log[num_ahead:]]


METERED = {"passes": ("metered",)}


def test_passes_that_time_nothing_run_at_once_and_the_timed_ones_afterwards_alone(passes):
    later = measured(passes, at_once_1=METERED, at_once_2=METERED, both={})
    assert later == [("both", "timed")]
    assert sorted(run for run, *_ in passes.log) == ["at_once_1", "at_once_2", "both", "both"]


def test_a_run_whose_last_trace_holds_no_time_runs_ahead_although_it_may_take_some(passes):
    declaration = Declaration("train", passes=("timed",))
    result, place = PassResult([RankOutcome(rank=0)], None, [], 1.0), Place("cpu", "gloo")
    last = {"at_once_2": gather(declaration, {"timed": result}, place, oversubscribed=False)}
    timed = {"passes": ("timed",)}
    assert measured(passes, last, at_once_1=METERED, at_once_2=timed, other=timed) == [
        ("other", "timed")
    ]


@pytest.mark.parametrize(
    "recorded",
    [
        {"measured_seconds": {"save": [0.1, 0.2]}},
        {"status": "died", "failure": Failure(kind="signal", message="killed", phase="step")},
    ],
)
def test_a_pass_that_took_a_time_or_surprised_runs_again_alone(passes, recorded):
    passes.outcomes["odd", "metered"] = RankOutcome(rank=0, **recorded)
    assert measured(passes, odd=METERED, even=METERED) == [("odd", "metered")]


def test_what_shapes_the_network_follows_another_or_has_a_timeline_runs_alone(passes):
    alone = {
        "shaped": METERED | {"own_network": True},
        "follower": METERED | {"follows": "shaped"},
        "drawn": METERED | {"has_timeline": True},
    }
    assert [run for run, _ in measured(passes, **alone)] == [*alone]


def test_what_fails_in_a_lane_is_asked_for_again(passes):
    whole, failed = passes.run, []

    def run(experiment, name, own):
        if not failed:
            failed.append(name)
            raise OSError("no space left on device")
        return whole(experiment, name, own)

    passes.run = run
    assert measured(passes, fails=METERED) == [("fails", "metered")]
    assert failed == ["fails"]

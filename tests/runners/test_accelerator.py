"""Accelerators without one: drivers, backends and ranks that spin, by stand-ins at the edge."""

import os
import time
from types import SimpleNamespace

import pytest
import torch

from proofbook.runners.__main__ import main
from proofbook.runners.core.declared.experiment import Declaration, find
from proofbook.runners.core.measuring import endings, launch
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.system import accelerator, gloo_threads, processes
from proofbook.runners.core.system.processes import IdleTime, Thread
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import Failure
from tests.processes import python

CUDA = torch.device("cuda", 0)


def test_a_device_that_nobody_knows_is_said_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv(accelerator.DEVICE, "gpu")
    assert main(["run", "hangs"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "PROOFBOOK_DEVICE is 'gpu'; set it to cpu, or leave it out" in line


@pytest.mark.parametrize(("num_ranks", "backend"), [(1, "nccl"), (2, "nccl"), (4, "gloo")])
def test_ranks_that_share_an_accelerator_communicate_over_gloo(num_ranks, backend, monkeypatch):
    monkeypatch.setattr(accelerator, "num_devices", lambda: 2)
    assert machine.num_places("cuda") == 2
    with Launcher("cuda") as launcher:
        assert launcher.place_of(Declaration("train", num_ranks)) == ("cuda", backend)


def live(tmp_path, *, spins):
    """This very process as a rank that has computed, without a heartbeat for a minute."""
    rank = endings.LiveRank(os.getpid(), tmp_path / "rank0", spins=spins)
    rank.idle_time._since = time.monotonic() - 60
    rank.update(None)
    return rank


def refused(tmp_path):
    """A rank whose record says that it ran out of memory."""
    one = live(tmp_path, spins=True)
    failure = Failure(
        kind="out_of_memory", message="", requested_bytes=1, rank=1, phase="forward", step=0
    )
    one.outcome = RankOutcome(rank=1, status="out_of_memory", failure=failure)
    return one


def test_a_rank_that_spins_for_a_collective_makes_no_progress(tmp_path):
    assert live(tmp_path, spins=True).idle_time.exceeds(6.0)
    assert not live(tmp_path, spins=False).idle_time.exceeds(6.0)


LOOP = gloo_threads.TCP_LOOP


@pytest.mark.parametrize(
    ("threads", "is_idle"),
    [
        # Processor time in a minute: each wakes up now and then, and together they take 3 %.
        ([("python", "S", 60), (LOOP, "S", 60), (LOOP, "R", 60)], True),
        ([("python", "R", 60), (LOOP, "S", 60)], False),  # ready to run, and others have the core
        ([("python", "S", 0), (gloo_threads.RUN_LOOP, "S", 180)], False),  # a long collective
        ([("python", "S", 0), (gloo_threads.RUN_LOOP, "R", 0)], False),  # it gets no turn
        ([], True),  # not shown by this kernel, which needs ten times as long
    ],
)
def test_what_only_wakes_up_is_idle_and_what_gets_no_turn_is_not(threads, is_idle, monkeypatch):
    shown = {number: Thread(*thread) for number, thread in enumerate(threads, 1)}
    monkeypatch.setattr(processes, "threads", lambda _: dict(shown))
    time_of = IdleTime(4711)
    time_of._since = time.monotonic() - 61
    assert time_of.exceeds(6.0) == is_idle


def test_peers_of_a_refused_rank_that_spin_are_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "GRACE_SECONDS", float("inf"))
    server = SimpleNamespace(exits=dict)
    with Launcher() as launcher:
        ranks = [live(tmp_path, spins=True), refused(tmp_path)]
        assert launcher._follow(server, ranks, None, patience=6.0, settle=0.1) is False


def test_peers_of_a_refused_rank_that_work_may_end_by_themselves(tmp_path):
    codes = [{}, {}, {os.getpid(): 0}]
    server = SimpleNamespace(exits=lambda: codes.pop(0))
    with Launcher() as launcher:
        ranks = [live(tmp_path, spins=False), refused(tmp_path)]
        assert launcher._follow(server, ranks, None, patience=6.0, settle=6.0) is False
    assert ranks[0].exit_code == 0


@pytest.mark.builds
def test_nothing_asks_for_accelerators_before_ranks_are_forked():
    """A process that has asked the driver cannot fork ranks that use what it found."""
    program = """
import torch
from proofbook.runners.core.measuring.forkserver import ENVIRONMENT
asked = []
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device"):
    setattr(torch.cuda, name, lambda *a, name=name: asked.append(name) or 0)
from proofbook.runners.core.declared.experiment import find, names
from proofbook.runners.core.ranks.process import preload
preload()
for name in names():
    find(name)
print(asked, ENVIRONMENT["PYTORCH_NVML_BASED_CUDA_CHECK"])
"""
    done = python("-c", program)
    assert done.stdout == "[] 1\n", done.stderr


@pytest.mark.parametrize("experiment", ["growth", "large_model", "sharding", "transformer"])
def test_ranks_share_an_accelerator_but_where_gloo_would_gather_and_scatter_on_it(experiment):
    sharded = {"fsdp", "fsdp_freed", "fsdp_kept", "fsdp_tensor", "split", "tensor_parallel"}
    runs = find(experiment).runs.values()
    alone = {run.strategy for run in runs if not run.can_share_device}
    assert alone == sharded & {run.strategy for run in runs}

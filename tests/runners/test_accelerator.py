"""Accelerators without one: drivers, backends and ranks that spin, by stand-ins at the edge."""

import os
import time
from types import SimpleNamespace

import pytest
import torch

from runners.__main__ import main
from runners.core.declared.experiment import Declaration, find
from runners.core.measuring import endings, launch
from runners.core.measuring.launch import Launcher
from runners.core.system import accelerator
from runners.core.trace import machine
from runners.core.trace.outcome import RankOutcome
from runners.core.trace.records import Failure
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
    """This very process as a rank that has burnt processor time and not spoken for a minute."""
    one = endings.LiveRank(os.getpid(), tmp_path / "rank0", spins=spins)
    one.quiet_since, one.quiet_ticks = time.monotonic() - 60, -(10**9)
    one.look(None)
    return one


def refused(tmp_path):
    """A rank whose record says that it ran out of memory."""
    one = live(tmp_path, spins=True)
    failure = Failure(
        kind="out_of_memory", message="", requested_bytes=1, rank=1, phase="forward", step=0
    )
    one.outcome = RankOutcome(rank=1, status="out_of_memory", failure=failure)
    return one


def test_a_rank_that_spins_for_a_collective_makes_no_progress(tmp_path):
    assert live(tmp_path, spins=True).is_quiet(6.0)
    assert not live(tmp_path, spins=False).is_quiet(6.0)


def test_a_rank_that_wakes_for_a_moment_now_and_then_makes_no_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(endings.processes, "cpu_ticks", lambda _: 30)  # 0.3 s in a minute
    monkeypatch.setattr(endings.processes, "wants_processor", lambda _: False)
    one = endings.LiveRank(os.getpid(), tmp_path / "rank0", quiet_since=time.monotonic() - 60)
    one.look(None)
    assert one.is_quiet(6.0)


def test_peers_of_a_refused_rank_that_spin_are_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "GRACE_SECONDS", float("inf"))
    server = SimpleNamespace(exits=dict)
    with Launcher() as launcher:
        ranks = [live(tmp_path, spins=True), refused(tmp_path)]
        assert launcher._follow(server, ranks, None, patience=6.0, settle=1.0) is False


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
from runners.core.measuring.forkserver import ENVIRONMENT
asked = []
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device"):
    setattr(torch.cuda, name, lambda *a, name=name: asked.append(name) or 0)
from runners.core.declared.experiment import find, names
from runners.core.ranks.process import preload
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

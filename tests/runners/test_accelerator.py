"""Accelerators without one: drivers, backends and ranks that spin, by stand-ins at the edge."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runners.__main__ import main
from runners.measuring import endings, launch
from runners.measuring.launch import Launcher
from runners.plans.experiment import RunPlan
from runners.system import accelerator
from runners.traces import machine
from runners.traces.outcome import RankOutcome
from runners.traces.records import Failure
from tests.processes import python

CUDA = torch.device("cuda", 0)
TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com"
)


@pytest.fixture
def old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that brings CUDA, on a machine whose driver it cannot use."""

    def fail() -> None:
        raise RuntimeError(TOO_OLD)

    monkeypatch.delenv(accelerator.DEVICE, raising=False)
    monkeypatch.setattr(accelerator, "DEVICE_FILES", (__file__,))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # NVML counts it all the same
    monkeypatch.setattr(torch.cuda, "init", fail)


def test_a_driver_too_old_is_said_in_one_line_and_nothing_is_measured(
    old_driver: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    assert main(["run", "hangs"]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert "driver on your system is too old (found version 11040)" in line
    assert "PROOFBOOK_DEVICE=cpu" in line
    assert not list(tmp_path.rglob("*.json"))


def test_a_machine_without_an_accelerator_is_measured_as_cpu(
    old_driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system. Please check that you have one")

    monkeypatch.setattr(torch.cuda, "init", fail)
    assert accelerator.kind() == "cpu"


@pytest.mark.parametrize(("num_ranks", "backend"), [(1, "nccl"), (2, "nccl"), (4, "gloo")])
def test_ranks_that_share_an_accelerator_communicate_over_gloo(
    num_ranks: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "num_devices", lambda: 2)
    assert machine.num_places("cuda") == 2
    with Launcher("cuda") as launcher:
        assert launcher.place_of(RunPlan("train", num_ranks)) == ("cuda", backend)


def live(tmp_path: Path, *, spins: bool) -> endings.LiveRank:
    """This very process as a rank that has burnt processor time and not spoken for a minute."""
    one = endings.LiveRank(os.getpid(), tmp_path / "rank0", spins=spins)
    one.quiet_since, one.quiet_ticks = time.monotonic() - 60, -(10**9)
    one.look(None)
    return one


def test_a_rank_that_spins_for_a_collective_makes_no_progress(tmp_path: Path) -> None:
    assert live(tmp_path, spins=True).is_quiet(6.0)
    assert not live(tmp_path, spins=False).is_quiet(6.0)


def test_peers_of_a_refused_rank_that_spin_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "GRACE_SECONDS", float("inf"))
    refused = live(tmp_path, spins=True)
    failure = Failure(
        kind="out_of_memory", message="", requested_bytes=1, rank=1, phase="forward", step=0
    )
    refused.outcome = RankOutcome(rank=1, status="out_of_memory", failure=failure)
    server: Any = SimpleNamespace(exits=dict)
    with Launcher() as launcher:
        ranks = [live(tmp_path, spins=True), refused]
        assert launcher._follow(server, ranks, None, patience=6.0, settle=1.0) is False


@pytest.mark.builds
def test_nothing_asks_for_accelerators_before_ranks_are_forked() -> None:
    """A process that has asked the driver cannot fork ranks that use what it found."""
    program = """
import torch
from runners.measuring.forkserver import ENVIRONMENT
asked = []
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device"):
    setattr(torch.cuda, name, lambda *a, name=name: asked.append(name) or 0)
from runners.plans.experiment import find, names
from runners.ranks.process import preload
preload()
for name in names():
    find(name)
print(asked, ENVIRONMENT["PYTORCH_NVML_BASED_CUDA_CHECK"])
"""
    done = python("-c", program)
    assert done.stdout == "[] 1\n", done.stderr

"""Runs that fail for want of the machine: the tests' own experiment, never part of the book."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist

from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank
from runners.traces.records import Death

QUESTION = "What does the launcher say when the machine fails a run?"
MEBIBYTE = 1 << 20


def well(rank: Rank) -> None:
    """Two ranks agree on a sum."""
    with rank.phase("sum"):
        dist.all_reduce(torch.ones(1))


def dies(rank: Rank) -> None:
    """A rank sends itself a signal, in a phase; both are settings."""
    with rank.phase(rank.settings.phase):
        if rank.rank == rank.settings.dying_rank:
            os.kill(os.getpid(), signal.Signals[rank.settings.signal])
        dist.all_reduce(torch.ones(1))


def gives_up(rank: Rank) -> None:
    """Rank 0 leaves as one does that cannot write its record."""
    with rank.phase("build"):
        if rank.rank == 0:
            os._exit(70)
        dist.all_reduce(torch.ones(1))


def fills(rank: Rank) -> None:
    """Write into the rank's own folder until it takes no more."""
    with rank.phase("save"):
        (rank.scratch / f"large{rank.rank}").write_bytes(bytes(rank.settings.num_bytes))


def opens(rank: Rank) -> None:
    """Open more files than a process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    with rank.phase("open"), ExitStack() as files:
        for _ in range(100):
            files.enter_context(Path("/dev/null").open("rb"))


def grows(rank: Rank) -> None:
    """Ask for more memory than the process may have, in a run without a budget."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (64 * MEBIBYTE, most))
    with rank.phase("forward"):
        torch.ones(256 * MEBIBYTE)


TIMED = ("timed",)
DECLARED = Death(rank=1, phase="step", signal="SIGKILL")


def _dies(signal_name: str, rank: int, phase: str, death: Death | None = DECLARED) -> RunPlan:
    settings = {"signal": signal_name, "dying_rank": rank, "phase": phase}
    expected = "died" if death else "completed"
    return RunPlan("dies", 2, settings, passes=TIMED, expected=expected, expected_death=death)


RUNS = {
    "well": RunPlan("well", 2, passes=TIMED),
    "as_declared": _dies("SIGKILL", 1, "step"),
    "terminated": _dies("SIGTERM", 0, "step", None),
    "gives_up": RunPlan("gives_up", 2, passes=TIMED),
    "fills": RunPlan("fills", 2, {"num_bytes": 8 * MEBIBYTE}, passes=TIMED),
    "opens": RunPlan("opens", 1, passes=TIMED),
    "grows": RunPlan("grows", 1, passes=TIMED),
}
STRATEGIES = {
    "well": well,
    "dies": dies,
    "gives_up": gives_up,
    "fills": fills,
    "opens": opens,
    "grows": grows,
}

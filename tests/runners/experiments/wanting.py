"""Runs that fail for want of the machine: the tests' own experiment, never part of the book."""

import os
import resource
import signal
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist

from proofbook.runners.core.declared.experiment import Declaration

QUESTION = "What does the launcher say when the machine fails a run?"
MEBIBYTE = 1 << 20


def terminated(rank):
    """Rank 0 gets a signal that only others send."""
    with rank.phase("step"):
        if rank.rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        dist.all_reduce(torch.ones(1))


def gives_up(rank):
    """Rank 0 leaves as one does that cannot write its record."""
    with rank.phase("build"):
        if rank.rank == 0:
            os._exit(70)
        dist.all_reduce(torch.ones(1))


def opens(rank):
    """Open more files than a process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    with rank.phase("open"), ExitStack() as files:
        for _ in range(100):
            files.enter_context(Path("/dev/null").open("rb"))


def grows(rank):
    """Ask for more memory than the process may have, in a run without a budget."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (64 * MEBIBYTE, most))
    with rank.phase("forward"):
        torch.ones(256 * MEBIBYTE)


RUNS = {
    name: Declaration(name, num_ranks, passes=("timed",))
    for name, num_ranks in (("terminated", 2), ("gives_up", 2), ("opens", 1), ("grows", 1))
}

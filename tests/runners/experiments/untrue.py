"""Strategies that no simulation survives, and one that it does."""

import os
import signal
import time

import torch
import torch.distributed as dist

from runners.declared.experiment import Declaration

QUESTION = "What happens to a simulation that cannot be?"


def _steps(rank, count=3):
    layer = torch.nn.Linear(8, 8)
    for _ in rank.steps(count):
        layer(torch.ones(2, 8)).sum().backward()


def killed(rank):
    """Its process ends."""
    os.kill(os.getpid(), signal.SIGKILL)


def stumbles(rank):
    """It fails by a fault of its own."""
    raise ValueError("a fault")


def spins(rank):
    """It waits for a value that no fake tensor has."""
    while torch.rand(()).item() == 0:
        pass


def selects(rank):
    """A shape follows from values."""
    values = torch.rand(10)
    print(values[values > 0.5].shape)


def forks(rank):
    """It starts a process."""
    os.fork()


def talks(rank):
    """Rank 0 waits for a word of rank 1, which waits for one of rank 0."""
    dist.recv_object_list([None], src=1 - rank.rank)


def sleeps(rank):
    """It would take an hour."""
    time.sleep(3600)
    _steps(rank)


NAMES = ("killed", "stumbles", "spins", "selects", "forks", "talks", "sleeps")
RUNS = {name: Declaration(name, 2, passes=("metered",)) for name in NAMES}

"""The tests' own small experiments: runs left to `--full`, surprises, and what fails a machine.

`lasting` reduces until a test ends a rank or a node; by then its first run, `brief`, has ended.
"""

import os
import resource
import signal
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist

from proofbook.runners.core.declared.experiment import Declaration

NUM_BYTES = 8 << 20
MEBIBYTE = 1 << 20


def count(rank):
    for step in rank.steps(rank.settings.num_steps):
        rank.measure("num_counted", step + 1)


def well(rank):
    """Takes no space, and nothing fails."""
    rank.measure("num_ranks", rank.world_size)


def crashes(rank):
    """A bug in the second step, which no phase marks."""
    for step in rank.steps(2):
        rank.measure("inverse", 1 / (1 - step))


def fills(rank):
    """Write into the rank's own folder until it takes no more."""
    with rank.phase("save"):
        (rank.scratch / f"large{rank.rank}").write_bytes(bytes(NUM_BYTES))


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


def brief(rank):
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    rank.epoch(1, loss=tensor[0].item(), num_samples=1)


def endless(rank):
    while True:
        rank.step_index += 1
        with rank.phase("all_reduce"):
            dist.all_reduce(torch.ones(1))


class Heavier:
    QUESTION = "What does a run leave to --full?"
    RUNS = {
        "light": Declaration("count", settings={"num_steps": 8}, passes=("timed",)),
        "heavy": Declaration("count", settings={"num_steps": 9}, passes=("timed",), full=True),
    }


class Heaviest:
    QUESTION = "Is a whole experiment left to --full?"
    STRATEGIES = {"alone": well}
    RUNS = {"alone": Declaration("alone", passes=("timed",), full=True)}


class Odd:
    QUESTION = "What does a command say of a surprise?"
    STRATEGIES = {"completes": well}
    RUNS = {
        "surprises": Declaration("completes", passes=("timed",), expected="out_of_memory"),
        "crashes": Declaration("crashes", passes=("timed",)),
    }


class Full:
    QUESTION = "What does a command say that finds no space?"
    RUNS = {name: Declaration(name, 2, passes=("timed",)) for name in ("well", "fills")}


class Wanting:
    QUESTION = "What does the launcher say when the machine fails a run?"
    RUNS = {
        name: Declaration(name, num_ranks, passes=("timed",))
        for name, num_ranks in (("terminated", 2), ("gives_up", 2), ("opens", 1), ("grows", 1))
    }


def summed(rank):
    total = torch.ones(3)
    for _ in rank.steps(1):
        dist.all_reduce(total)
    print("summed")


class Elsewhere:
    QUESTION = "What is measured where the system is not Linux?"
    RUNS = {
        "summed": Declaration("summed", 2),
        "limited": Declaration("summed", passes=("budgeted",), budget_bytes=NUM_BYTES),
    }


class Lasting:
    QUESTION = "What do the other nodes say when one is lost?"
    RUNS = {name: Declaration(name, 2, passes=("timed",)) for name in ("brief", "endless")}


EXPERIMENTS = {
    "heavier": Heavier, "heaviest": Heaviest, "odd": Odd, "full": Full, "wanting": Wanting,
    "elsewhere": Elsewhere, "lasting": Lasting,
}  # fmt: skip

"""The programs that pages print: each is executed as it stands, and its outcome recorded.

A page that shows code shows a file of `content/topics/*/code/`; this experiment runs every such
file in ranks, as `torchrun` would: with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT
in the environment. How many ranks, under which budget and to which end, the file says itself
(`runners/programs.py`); one that has a budget runs without it too. A program that leaves
`step_seconds` or `model` behind has its step times, or its parameters' digest, recorded; so are
numbers that its ranks gathered as `told`, one dict a rank.

    python -m runners run listings
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import time
from pathlib import Path

import torch.distributed as dist
from torch import nn

from runners.experiment import RunPlan
from runners.programs import Program, found
from runners.rank import Rank
from runners.recorder import parameter_digest
from runners.trace import PredictionStep, Setting

QUESTION = "What do the programs that the lessons show really do when they run?"

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = found(ROOT, "content/topics/*/code/*.py")  # the digest covers them by this pattern
# gloo's worker threads need Python's lock to drop a finished work, and a group that is destroyed
# waits for its threads without giving that lock up: destroyed at once, it can wait for ever.
SETTLE_SECONDS = 0.1


def _plan(program: Program, *, limited: bool) -> RunPlan:
    return RunPlan(
        "program",
        program.ranks,
        {"program": program.path.relative_to(ROOT).as_posix(), **program.settings},
        expected=program.expected if limited or program.budget_bytes is None else "completed",
        budget_bytes=program.budget_bytes if limited else None,
        passes=("budgeted",) if limited else ("timed",),
        has_timeline=False,
        only_on_cpu=True,  # the programs place their tensors there
    )


def _plans() -> dict[str, RunPlan]:
    plans: dict[str, RunPlan] = {}
    for name, program in PROGRAMS.items():
        plans[name] = _plan(program, limited=program.budget_bytes is not None)
        if program.budget_bytes is not None:
            plans[f"{name}_unlimited"] = _plan(program, limited=False)
    return plans


RUNS = _plans()


def settle(plan: RunPlan) -> RunPlan:
    """The same run: a program has no settings but its own constants.

    Raises:
        ValueError: one of them was to be another.
    """
    path = plan.settings["program"]
    if plan.settings not in [declared.settings for declared in RUNS.values()]:
        raise ValueError(f"a program's settings are its own constants; change them in {path}")
    return plan


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _set_environment(rank: Rank) -> None:
    """Put into the environment what `torchrun` would, and leave the group to the program."""
    port: list[int | None] = [_free_port() if rank.rank == 0 else None]
    if dist.is_initialized():
        dist.broadcast_object_list(port, src=0)
        dist.barrier()
        time.sleep(SETTLE_SECONDS)
        dist.destroy_process_group()
    os.environ.update(
        RANK=str(rank.rank),
        LOCAL_RANK=str(rank.rank),
        WORLD_SIZE=str(rank.world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port[0]),
    )


def program(rank: Rank) -> None:
    """Run the program of this run in this rank, from its first line to its last."""
    path = str(ROOT / rank.settings.program)
    _set_environment(rank)
    sys.argv = [path]
    with rank.phase("program"):
        left = runpy.run_path(path, run_name="__main__")
    rank.outcome.step_seconds = left.get("step_seconds", [])
    model = left.get("model")
    if isinstance(model, nn.Module):
        parameters = list(model.parameters())
        rank.outcome.num_parameters = sum(p.numel() for p in parameters)
        rank.outcome.parameter_digest = parameter_digest(parameters)
    told = left.get("told")
    if isinstance(told, list) and all(isinstance(one, dict) for one in told):
        rank.outcome.prediction.append(_as_told(told))


def _as_told(told: list[dict[str, Setting]]) -> PredictionStep:
    """What the ranks told each other, as facts by rank."""
    return PredictionStep(
        name="told",
        rank=None,
        operation="gather what every rank tells",
        shape_in=[],
        shape_out=[],
        values=[],
        facts={f"rank_{r}_{name}": v for r, one in enumerate(told) for name, v in one.items()},
    )


STRATEGIES = {"program": program}

"""How a program from `content/` is executed in ranks, as `torchrun` would execute it.

In: the programs as they declare themselves (`runners/traces/programs.py`). Out: a run for each, and
the strategy that executes it: with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the
environment. How many ranks, under which budget and to which end, the file says itself; one that has
a budget runs without it too.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch.distributed as dist
from torch import nn

from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.programs import Program
from runners.traces.records import PredictionStep, Setting

ROOT = Path(__file__).resolve().parents[2]
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


def plans(programs: Mapping[str, Program]) -> dict[str, RunPlan]:
    """The runs of programs: each as it declares itself, and without its budget if it has one."""
    found: dict[str, RunPlan] = {}
    for name, program in programs.items():
        found[name] = _plan(program, limited=program.budget_bytes is not None)
        if program.budget_bytes is not None:
            found[f"{name}_unlimited"] = _plan(program, limited=False)
    return found


def unchanged(plan: RunPlan, declared: Mapping[str, RunPlan]) -> RunPlan:
    """The same run: a program has no settings but its own constants.

    Raises:
        ValueError: one of them was to be another.
    """
    path = plan.settings["program"]
    if plan.settings not in [one.settings for one in declared.values()]:
        raise ValueError(f"a program's settings are its own constants; change them in {path}")
    return plan


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _leave_group() -> None:
    dist.barrier()
    time.sleep(SETTLE_SECONDS)
    dist.destroy_process_group()


def _set_environment(rank: Rank) -> None:
    """Put into the environment what `torchrun` would, and leave the group to the program."""
    port: list[int | None] = [_free_port() if rank.rank == 0 else None]
    if dist.is_initialized():
        dist.broadcast_object_list(port, src=0)
        _leave_group()
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
    if dist.is_initialized():
        _leave_group()
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

"""A worker: simulates the runs that it is given, whose ranks have a process each.

In: the name of a run. Out: its `SimulatedSteps`.
"""

from __future__ import annotations

import gc
import importlib
import time

import torch

from runners.plans.experiment import Experiment, RunPlan
from runners.ranks.process import preload
from runners.simulate.fake_mode import ValuelessMode
from runners.simulate.log import TAKE_OTHERS
from runners.simulate.rank_processes import Answer, RankProcesses, Unsimulated
from runners.simulate.step_log import SimulatedSteps

# Processor seconds of one rank: a program that waits for a value to change never ends.
MOST_SECONDS = 60
MOST_SECONDS_OF_A_PROGRAM = 15
MOST_WALL_SECONDS = 1200.0  # for one that waits without computing


def prepare() -> None:
    """Load what ranks use, once, before any is forked."""
    preload()
    importlib.import_module("torch.distributed.optim")  # scripts functions, which takes long
    importlib.import_module("torch.distributed.pipelining")
    with ValuelessMode():
        layer = torch.nn.Linear(4, 4)
        update = torch.optim.Adam(layer.parameters(), fused=True)
        layer(torch.ones(2, 4))
        # No backward pass: on a torch with devices it starts threads, and after that no process
        # forked from this one can take one. Under fake tensors a build for CUDA has a device.
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        update.step()
    gc.collect()
    gc.freeze()  # no later collection looks at what was loaded


def simulate_plan(
    experiment: Experiment, run: str, plan: RunPlan, device: str = "cpu"
) -> SimulatedSteps:
    """Simulate the ranks of a run that differ.

    The first and the last are simulated; where they come out equal, so do those between.

    Args:
        experiment: whose run it is.
        run: its name.
        plan: as it is declared, or changed.
        device: `cpu` or `cuda`.
    """
    start = time.monotonic()
    most = MOST_SECONDS_OF_A_PROGRAM if plan.strategy == "program" else MOST_SECONDS
    deadline = start + MOST_WALL_SECONDS
    refused = _refused(plan)
    answer: Answer = (
        Unsimulated(refused)
        if refused
        else RankProcesses(experiment, plan, device, most, deadline).answer()
    )
    logs = {} if isinstance(answer, Unsimulated) else answer
    return SimulatedSteps(
        experiment=experiment.name,
        run=run,
        ranks=[logs[rank] for rank in sorted(logs)],
        like_first=[rank for rank in range(plan.world_size) if logs and rank not in logs],
        reason=answer.reason if isinstance(answer, Unsimulated) else None,
        has_failed=isinstance(answer, Unsimulated) and answer.has_failed,
        seconds=round(time.monotonic() - start, 3),
    )


def _refused(plan: RunPlan) -> str:
    """Why a run is not tried; empty where it is."""
    if plan.follows is not None:
        return f"it works with what was measured of {plan.follows}"
    how = TAKE_OTHERS.get(plan.expected)
    if how is not None:
        return f"its ranks are meant to {how}, which takes ranks that meet each other"
    return ""

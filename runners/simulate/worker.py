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
from runners.simulate.rank_processes import Answer, RankProcesses
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
        layer(torch.ones(2, 4)).sum().backward()
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
    answer: Answer = (
        _refused(plan) or RankProcesses(experiment, plan, device, most, deadline).answer()
    )
    logs = {} if isinstance(answer, str) else answer
    return SimulatedSteps(
        experiment=experiment.name,
        run=run,
        ranks=[logs[rank] for rank in sorted(logs)],
        like_first=[rank for rank in range(plan.world_size) if logs and rank not in logs],
        reason=answer if isinstance(answer, str) else None,
        seconds=round(time.monotonic() - start, 3),
    )


def _refused(plan: RunPlan) -> str:
    """Why a run is not tried; empty where it is."""
    how = TAKE_OTHERS.get(plan.expected)
    if how is not None:
        return f"its ranks are meant to {how}, which takes ranks that meet each other"
    return ""

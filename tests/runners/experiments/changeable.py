"""A run whose settings depend on each other: the tests' own experiment for what readers try."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist

from runners.plans.experiment import RunPlan, whole_number
from runners.ranks.rank import Rank

QUESTION = "What happens when a reader sets something?"
MEBIBYTE = 1 << 20
SETTINGS = {"num_rows": 12, "rate": 0.5, "word": "sum", "widths": [3, 4], "num_epochs": 3}
TRIED_WITH = {"shared": {"num_epochs": 2}}


def settle(plan: RunPlan) -> RunPlan:
    """Each rank's part of the rows."""
    num_rows = whole_number(plan.settings, "num_rows")
    if num_rows % plan.world_size:
        raise ValueError(f"num_rows {num_rows} cannot be shared by {plan.world_size} ranks")
    part = num_rows // plan.world_size
    return replace(plan, settings={**plan.settings, "num_rows_per_rank": part})


def shared(rank: Rank) -> None:
    """Every rank counts its rows; all agree on their number."""
    settings = rank.settings
    counted = torch.full((1,), float(settings.num_rows_per_rank))
    for epoch in rank.epochs(settings.num_epochs):
        for _ in rank.steps(5):
            total = counted.clone()
            with rank.phase("all_reduce"):
                dist.all_reduce(total)
        rank.epoch(epoch, loss=settings.rate * total.item(), num_samples=settings.num_rows)
        print(f"{settings.word} of {settings.num_rows_per_rank} each: {total.item():.0f}")


def alone(rank: Rank) -> None:
    """One device asks for memory by the row."""
    with rank.phase("forward"):
        torch.ones(rank.settings.num_rows * MEBIBYTE // 4)


RUNS = {
    "shared": settle(RunPlan("shared", 2, SETTINGS)),
    "alone": settle(
        RunPlan("alone", 1, SETTINGS, passes=("budgeted",), budget_bytes=48 * MEBIBYTE)
    ),
    "free": settle(RunPlan("alone", 1, SETTINGS, passes=("timed",))),
}
STRATEGIES = {"shared": shared, "alone": alone}

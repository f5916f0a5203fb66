"""When a second rank pays: the same global batch on one device, and under DDP over two ranks.

A stack of equal layers, and batches from small to large. What is exchanged in a step depends on the
parameters alone, what is computed on the rows as well: so the exchange weighs less and less.

    python -m runners run speedup
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, perceptron

QUESTION = "From which batch on is a step over two ranks faster than a step on one device?"
FULL = True

SETTINGS: dict[str, Setting] = {
    "width": 256,
    "num_layers": 8,
    "global_batch_size": 64,
    "num_steps": 18,
    "learning_rate": 0.01,
}
BATCH_SIZES = (64, 256, 1024, 4096)


def settle(plan: RunPlan) -> RunPlan:
    """The same run with each rank's share of the batch worked out anew.

    Raises:
        ValueError: the batch cannot be dealt out to the ranks equally.
    """
    settings = dict(plan.settings)
    rows = whole_number(settings, "global_batch_size")
    if rows % plan.world_size:
        raise ValueError(f"global_batch_size {rows} is not divisible by {plan.world_size} ranks")
    settings["batch_size"] = rows // plan.world_size
    return replace(plan, settings=settings)


def _plan(strategy: str, world_size: int, rows: int) -> RunPlan:
    settings = {**SETTINGS, "global_batch_size": rows}
    return settle(RunPlan(strategy, world_size, settings, passes=("timed",)))


RUNS = {
    f"{name}_{rows}": _plan(strategy, world_size, rows)
    for rows in BATCH_SIZES
    for name, strategy, world_size in (("one", "single", 1), ("two", "ddp", 2))
}


CHOICES = tuple(
    Choice(
        f"rows_{rows}",
        f"Is a step on {rows} rows faster on one device, or under DDP over two ranks?",
        (f"one_{rows}", f"two_{rows}"),
    )
    for rows in BATCH_SIZES
)


def forecast(plan: RunPlan) -> Work:
    """A stack of equal layers on this rank's share of the batch; under DDP, its gradients."""
    width, num_layers, rows = (
        whole_number(plan.settings, name) for name in ("width", "num_layers", "batch_size")
    )
    alone = stack_work([width] * (num_layers + 1), rows)
    if plan.strategy == "single":
        return alone
    model_bytes = 4 * alone.optimizer_parameters
    return replace(
        alone,
        moved_bytes=alone.moved_bytes + 6 * model_bytes,  # into the buckets, divided, and back
        num_operations=alone.num_operations + 6 * num_layers,
        exchanges=(Exchange("all_reduce", model_bytes, 2, plan.world_size),),
        num_busy_ranks=plan.world_size,
    )


def _train(rank: Rank, model: nn.Module) -> None:
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    source = torch.Generator().manual_seed(rank.seed + rank.rank)
    shape = (settings.batch_size, settings.width)
    features = torch.randn(shape, generator=source).to(rank.device)
    labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
    rank.watch(model, optimizer)
    for _ in rank.steps(settings.num_steps):
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(model(features), labels)
        with rank.phase("backward"):
            loss.backward()
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        rank.count_samples(settings.batch_size)


def _model(rank: Rank) -> nn.Module:
    widths = (rank.settings.width,) * (rank.settings.num_layers + 1)
    rank.describe(description(widths, [range(rank.world_size)] * rank.settings.num_layers))
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        return perceptron(widths, device=rank.device)


def single(rank: Rank) -> None:
    """The whole batch on one device."""
    _train(rank, _model(rank))


def ddp(rank: Rank) -> None:
    """A share of the batch on each rank, gradients averaged."""
    model = _model(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    _train(rank, replica)


STRATEGIES = {"single": single, "ddp": ddp}

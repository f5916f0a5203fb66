"""Gradient checkpointing: activations that are dropped in forward and computed again in backward.

A stack of equal layers with a batch so large that activations, not parameters, fill the memory.
The same training once with every activation kept, and once with only those at the borders of
segments kept: its peak, its loss, and its time for a step.

    python -m runners run recomputation
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Work, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, perceptron

QUESTION = "Must training keep every intermediate result until backward needs it?"
FULL = True

BYTES_PER_VALUE = 4
SETTINGS: dict[str, Setting] = {
    "num_layers": 16,
    "width": 256,
    "batch_size": 2048,
    "num_steps": 10,
    "learning_rate": 0.1,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the bytes of one layer's output worked out anew.

    Raises:
        ValueError: there are more segments than layers.
    """
    settings = dict(plan.settings)
    layers, segments = whole_number(settings, "num_layers"), whole_number(settings, "num_segments")
    if segments > layers:
        raise ValueError(f"num_layers {layers} cannot be cut into {segments} segments")
    values = whole_number(settings, "batch_size") * whole_number(settings, "width")
    settings["activation_bytes"] = BYTES_PER_VALUE * values
    return replace(plan, settings=settings)


def _plan(strategy: str, num_segments: int) -> RunPlan:
    settings = {**SETTINGS, "num_segments": num_segments}
    return settle(RunPlan(strategy, 1, settings, has_timeline=False))


RUNS = {"kept": _plan("kept", 1), "recomputed": _plan("recomputed", 4)}


CHOICES = (
    Choice("faster", "Which step is faster?", ("kept", "recomputed")),
    Choice("smaller", "Which has the lower peak?", ("kept", "recomputed"), by="peak_bytes"),
)


def forecast(plan: RunPlan) -> Work:
    """A stack of equal layers; with segments, their forward pass but for the last one's, again."""
    settings = plan.settings
    width, num_layers, rows, segments = (
        whole_number(settings, name)
        for name in ("width", "num_layers", "batch_size", "num_segments")
    )
    activation = whole_number(settings, "activation_bytes")
    once = stack_work([width] * (num_layers + 1), rows)
    again = (segments - 1) / segments  # of the layers
    held = num_layers + 2 if segments == 1 else num_layers // segments + segments + 2
    return replace(
        once,
        peak_bytes=held * activation
        + activation
        + 8 * rows
        + BYTES_PER_VALUE * once.optimizer_parameters,
        flops=once.flops + again * 2.0 * rows * width * width * num_layers,
        num_products=once.num_products + round(again * num_layers),
        moved_bytes=once.moved_bytes + again * 3 * activation * num_layers,
        num_operations=once.num_operations + round(again * 12 * num_layers),
    )


def train(rank: Rank) -> None:
    """Train on one batch; with more than one segment, only their borders are kept in forward."""
    settings = rank.settings
    widths = (settings.width,) * (settings.num_layers + 1)
    rank.describe(description(widths, [[0]] * settings.num_layers))
    with rank.phase("build"):
        stack = perceptron(widths, device=rank.device)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.batch_size, settings.width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    rank.watch(stack, optimizer)
    losses = []
    for _ in rank.steps(settings.num_steps):
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(_forward(rank, stack, features), labels)
        with rank.phase("backward"):
            loss.backward()
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    rank.epoch(1, loss=losses[-1], num_samples=settings.batch_size)


def _forward(rank: Rank, stack: nn.Sequential, features: Tensor) -> Tensor:
    if rank.settings.num_segments == 1:
        logits: Tensor = stack(features)
        return logits
    segmented: Tensor = checkpoint_sequential(
        stack, rank.settings.num_segments, features, use_reentrant=False
    )
    return segmented


STRATEGIES = {"kept": train, "recomputed": train}

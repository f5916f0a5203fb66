"""What the trace of `pipeline_schedules` shows once a pipeline is trained: how near it is to whole.

In: a rank and its pipeline. Out: the loss and the gradients of one step more, compared with those
of the undivided model.
"""

from __future__ import annotations

import torch
from torch import nn

from runners.experiments.pipeline_schedules import Settings
from runners.experiments.pipeline_schedules.stack import drawn, layers_of, undivided_step
from runners.ranks.rank import Rank


def compare(
    rank: Rank[Settings],
    own: list[int],
    parts: nn.ModuleList,
    num_steps: int,
    loss: float | None,
) -> None:
    """The loss and the gradients that a step leaves, beside those of the undivided model.

    Args:
        rank: whose stages they are.
        own: the numbers of its stages.
        parts: these stages.
        num_steps: how often they were updated before.
        loss: of the step, where this rank knows it.
    """
    model, undivided_loss = _undivided(rank, num_steps)
    size = rank.settings.num_layers_per_stage
    furthest = largest = 0.0
    for index, part in zip(own, parts, strict=True):
        whole = nn.Sequential(*list(model)[index * size : (index + 1) * size])
        for ours, theirs in zip(part.parameters(), whole.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            furthest = max(furthest, (ours.grad - theirs.grad).abs().max().item())
            largest = max(largest, theirs.grad.abs().max().item())
    rank.measure("gradient_distance", furthest / largest)
    if loss is not None:
        rank.measure("loss", loss)
        rank.measure("undivided_loss", undivided_loss)


def _undivided(rank: Rank[Settings], num_steps: int) -> tuple[nn.Sequential, float]:
    """The whole model after as many steps, with the gradients of one more; and that one's loss."""
    model = nn.Sequential(*layers_of(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    samples, targets = drawn(rank, 0), drawn(rank, 1)
    for _ in range(num_steps):
        undivided_step(model, samples, targets)
        optimizer.step()
        optimizer.zero_grad()
    return model, undivided_step(model, samples, targets)

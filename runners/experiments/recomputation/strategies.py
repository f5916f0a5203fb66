"""One training step, with every activation kept, or with those at the borders of segments only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from runners.experiments.recomputation import Settings
from runners.ranks.rank import Rank
from runners.training.steps import random_samples, stack_for


def train(rank: Rank[Settings]) -> None:
    """Train on one batch; with more than one segment, only their borders are kept in forward."""
    settings = rank.settings
    stack = stack_for(rank)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    features, labels = random_samples(rank, settings.batch_size)
    rank.watch(stack, optimizer)
    losses = []
    for _ in rank.steps(settings.num_steps):
        with rank.phase("forward"):  # segments are called, and not the stack whose hook would tell
            loss = nn.functional.cross_entropy(_forward(rank, stack, features), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    rank.epoch(1, loss=losses[-1], num_samples=settings.batch_size)


def _forward(rank: Rank[Settings], stack: nn.Sequential, features: Tensor) -> Tensor:
    """The logits, which nobody holds when the step is over."""
    if rank.settings.num_segments == 1:
        logits: Tensor = stack(features)
        return logits
    segmented: Tensor = checkpoint_sequential(
        stack, rank.settings.num_segments, features, use_reentrant=False
    )
    return segmented


STRATEGIES = {"kept": train, "recomputed": train}

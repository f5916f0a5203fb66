"""One training step, with every activation kept, or with those at the borders of segments only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from runners.experiments.recomputation import Settings
from runners.ranks.rank import Rank
from runners.training.networks import description, perceptron


def train(rank: Rank[Settings]) -> None:
    """Train on one batch; with more than one segment, only their borders are kept in forward."""
    settings = rank.settings
    stack = _stack(rank)
    features, labels = _batch(rank)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    rank.watch(stack, optimizer)
    losses = []
    for _ in rank.steps(settings.num_steps):
        with rank.phase("forward"):  # segments are called, and not the stack whose hook would tell
            if settings.num_segments == 1:
                logits = stack(features)
            else:
                logits = checkpoint_sequential(
                    stack, settings.num_segments, features, use_reentrant=False
                )
            loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    rank.epoch(1, loss=losses[-1], num_samples=settings.batch_size)


def _stack(rank: Rank[Settings]) -> nn.Sequential:
    settings = rank.settings
    widths = (settings.width,) * (settings.num_layers + 1)
    rank.describe(description(widths, [[0]] * settings.num_layers))
    return perceptron(widths, device=rank.device)


def _batch(rank: Rank[Settings]) -> tuple[Tensor, Tensor]:
    settings = rank.settings
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.batch_size, settings.width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    return features, labels


STRATEGIES = {"kept": train, "recomputed": train}

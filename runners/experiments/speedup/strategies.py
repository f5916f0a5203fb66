"""One global batch: whole on one device, or a share of it on each rank under DDP."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.speedup import Settings
from runners.ranks.rank import Rank
from runners.training.stack import equal_stack, random_batch


def ddp(rank: Rank[Settings]) -> None:
    """A share of the batch on each rank, gradients averaged."""
    model = _model(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    _train(rank, replica)


def single(rank: Rank[Settings]) -> None:
    """The whole batch on one device."""
    _train(rank, _model(rank))


def _train(rank: Rank[Settings], model: nn.Module) -> None:
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    seed = rank.seed + rank.rank  # each rank has samples of its own
    features, labels = random_batch(rank, settings.batch_size, settings.width, seed)
    rank.watch(model, optimizer)
    for _ in rank.steps(settings.num_steps):
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rank.count_samples(settings.batch_size)


def _model(rank: Rank[Settings]) -> nn.Sequential:
    return equal_stack(rank, rank.settings.width, rank.settings.num_layers)


STRATEGIES = {"single": single, "ddp": ddp}

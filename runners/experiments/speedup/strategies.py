"""A step on the whole batch on one device, and on a share of it under DDP."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.speedup import Settings
from runners.ranks.rank import Rank
from runners.training.steps import random_samples, stack_for


def ddp(rank: Rank[Settings]) -> None:
    """A share of the batch on each rank, gradients averaged."""
    model = stack_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    _train(rank, replica)


def single(rank: Rank[Settings]) -> None:
    """The whole batch on one device."""
    _train(rank, stack_for(rank))


def _train(rank: Rank[Settings], model: nn.Module) -> None:
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    features, labels = random_samples(rank, settings.batch_size)
    rank.watch(model, optimizer)
    for _ in rank.steps(settings.num_steps):
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rank.count_samples(settings.batch_size)


STRATEGIES = {"single": single, "ddp": ddp}

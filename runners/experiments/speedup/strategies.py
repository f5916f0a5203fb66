"""A step on the whole batch on one device, and on a share of it under DDP."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.speedup import Settings
from runners.ranks.rank import Rank
from runners.training.networks import description, perceptron


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
    source = torch.Generator().manual_seed(rank.seed + rank.rank)
    shape = (settings.batch_size, settings.width)
    features = torch.randn(shape, generator=source).to(rank.device)
    labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
    rank.watch(model, optimizer)
    for _ in rank.steps(settings.num_steps):
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rank.count_samples(settings.batch_size)


def _model(rank: Rank[Settings]) -> nn.Module:
    settings = rank.settings
    widths = (settings.width,) * (settings.num_layers + 1)
    rank.describe(description(widths, [range(rank.world_size)] * settings.num_layers))
    torch.manual_seed(rank.seed)
    return perceptron(widths, device=rank.device)


STRATEGIES = {"single": single, "ddp": ddp}

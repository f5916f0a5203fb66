"""Accumulate the gradients of microbatches under DDP or FSDP, and reduce them with the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.accumulation import Settings
from runners.experiments.accumulation.unequal import gradients
from runners.ranks.rank import Rank
from runners.training.steps import random_samples, stack_for


def train(rank: Rank[Settings]) -> None:
    """Train to the end; a step is one update on all the samples of this rank."""
    settings = rank.settings
    is_sharded = settings.strategy == "sharded"
    model = stack_for(rank, is_sharded=is_sharded)
    features, labels = random_samples(rank, settings.num_samples)
    with rank.phase("wrap"):
        wrapped = _sharded(rank, model) if is_sharded else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(wrapped, optimizer)
    losses = []
    for _ in rank.steps(settings.num_updates):
        loss = 0.0
        for index in range(settings.num_microbatches):
            part = slice(index * settings.microbatch_size, (index + 1) * settings.microbatch_size)
            is_last = index == settings.num_microbatches - 1
            reductions = is_last or settings.reduces_each
            with nullcontext() if reductions else _silent(wrapped):
                own = nn.functional.cross_entropy(wrapped(features[part]), labels[part])
                mean = own / settings.num_microbatches
                mean.backward()
            loss += mean.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
        rank.count_samples(settings.num_samples)
    rank.epoch(
        1, loss=losses[-1], num_samples=settings.num_samples, parameters=list(model.parameters())
    )


@contextmanager
def _silent(wrapped: nn.Module) -> Iterator[None]:
    """Add gradients up on this rank alone."""
    if isinstance(wrapped, DistributedDataParallel):
        with wrapped.no_sync():
            yield
        return
    assert isinstance(wrapped, FSDPModule)
    wrapped.set_requires_gradient_sync(False)
    yield
    wrapped.set_requires_gradient_sync(True)


def _sharded(rank: Rank[Settings], model: nn.Module) -> nn.Module:
    """The model itself, each of its layers in shards."""
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


STRATEGIES = {"train": train, "sharded": train, "gradients": gradients}

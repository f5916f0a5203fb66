"""One stack of layers: replicas, shards, stages, a split batch, and a single device."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.growth import Settings
from runners.ranks.rank import Rank
from runners.training.networks import description, mlp
from runners.training.steps import random_samples, stack_for


def ddp(rank: Rank[Settings]) -> None:
    """A replica and a batch on every rank; gradients are averaged."""
    model = stack_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    _train(rank, replica, _whole_step(rank, replica, rank.seed + rank.rank))


def fsdp(rank: Rank[Settings]) -> None:
    """Each layer's parameters in shards, a batch on every rank."""
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    model = stack_for(rank, is_sharded=True)
    with rank.phase("wrap"):
        for module in model.children():
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
    _train(rank, model, _whole_step(rank, model, rank.seed + rank.rank))


def stages(rank: Rank[Settings]) -> None:
    """Each rank its own layers; one batch goes forward through all of them and back."""
    width, num_layers = rank.settings.width, rank.settings.num_layers
    own = rank.settings.num_layers_per_rank
    is_first, is_last = rank.rank == 0, rank.rank == rank.world_size - 1
    held_by = [[layer // own] for layer in range(num_layers)]
    rank.describe(description([width] * (num_layers + 1), held_by))
    model = mlp([width] * (own + 1), device=rank.device)
    features, labels = random_samples(rank, rank.settings.batch_size, rank.seed)

    def step() -> float | None:
        taken = features
        if not is_first:
            taken = rank.receive(features.shape, source=rank.rank - 1).requires_grad_()
        with rank.phase("forward"):  # a hook would take sending for a part of it
            given = model(taken)
            if is_last:
                loss = nn.functional.cross_entropy(given, labels)
            else:
                given = torch.relu(given)
        gradient = None
        if not is_last:
            rank.send(given.detach(), to=rank.rank + 1)
            gradient = rank.receive(given.shape, source=rank.rank + 1)
        (loss if is_last else given).backward(gradient)
        if not is_first:
            assert taken.grad is not None
            rank.send(taken.grad, to=rank.rank - 1)
        return loss.item() if is_last else None

    _train(rank, model, step)


def split(rank: Rank[Settings]) -> None:
    """Rank 0 holds the batch: it scatters the samples, gathers the logits and takes the loss."""
    model = stack_for(rank)
    shape = (rank.settings.num_samples_per_rank, rank.settings.width)
    features, labels = (
        random_samples(rank, rank.settings.batch_size, rank.seed)
        if rank.rank == 0
        else (None, None)
    )

    def scattered(whole: Tensor | None) -> Tensor:
        with rank.phase("scatter", computes=False):
            own = torch.empty(shape, device=rank.device)
            dist.scatter(own, None if whole is None else list(whole.chunk(rank.world_size)))
        return own

    def step() -> float | None:
        own = scattered(features)
        with rank.phase("forward"):  # a hook would take the loss of the whole batch for a part
            logits = model(own)
        with rank.phase("gather", computes=False):
            gathered = None
            if rank.rank == 0:
                gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
            dist.gather(logits.detach(), gathered)
        loss, gradients = _whole_loss(rank, gathered, labels)
        del gathered
        gradient = scattered(gradients)
        logits.backward(gradient)
        with rank.phase("all_reduce", computes=False):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        return loss

    _train(rank, model, step)


def _whole_loss(
    rank: Rank[Settings], gathered: list[Tensor] | None, labels: Tensor | None
) -> tuple[float | None, Tensor | None]:
    """On rank 0: the loss over the whole batch, and its gradient with respect to the logits."""
    if gathered is None or labels is None:
        return None, None
    with rank.phase("loss"):
        logits = torch.cat(gathered).requires_grad_()
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        return loss.item(), logits.grad


def single(rank: Rank[Settings]) -> None:
    """One device holds everything."""
    model = stack_for(rank)
    _train(rank, model, _whole_step(rank, model, rank.seed))


def _whole_step(rank: Rank[Settings], model: nn.Module, seed: int) -> Callable[[], float]:
    """Forward and backward on this rank's whole batch."""
    features, labels = random_samples(rank, rank.settings.batch_size, seed)

    def step() -> float:
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        return loss.item()

    return step


def _train(rank: Rank[Settings], model: nn.Module, step: Callable[[], float | None]) -> None:
    """Repeat one step; `step` goes forward and backward, and gives the loss where it is known."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    loss = None
    for _ in rank.steps(settings.num_steps):
        loss = step()
        optimizer.step()
        optimizer.zero_grad()
    rank.epoch(1, loss=loss, num_samples=settings.num_samples_per_rank if loss else 0)


STRATEGIES = {"single": single, "ddp": ddp, "fsdp": fsdp, "stages": stages, "split": split}

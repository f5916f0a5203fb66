"""One model on one device, under DDP, under FSDP, with tensor parallelism, and in two stages."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.large_model import Settings
from runners.experiments.large_model.samples import held_out, training_batch
from runners.ranks.rank import Rank
from runners.training.networks import description, grade, mlp
from runners.training.steps import validate


def single(rank: Rank[Settings]) -> None:
    """One device holds parameters, gradients and optimizer state of every layer."""
    model = _whole(rank)
    _train(rank, model, _optimizer(rank, model), 0)


def ddp(rank: Rank[Settings], *, view: bool = False) -> None:
    """A whole replica on every rank, and buckets to average gradients in.

    Args:
        rank: this rank.
        view: whether gradients live inside the buckets instead of beside them.
    """
    model = _whole(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model, gradient_as_bucket_view=view)
    _train(rank, replica, _optimizer(rank, replica), rank.rank)


def fsdp(rank: Rank[Settings]) -> None:
    """Each layer's parameters in shards; a layer is gathered whole while it computes."""
    model = _empty(rank, sharded=[True] * (len(rank.settings.widths) - 1))
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        for module in model:
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model.to_empty(device=rank.device)
        _initialise(rank, model)
    _train(rank, model, _optimizer(rank, model), rank.rank)


def tensor_parallel(rank: Rank[Settings]) -> None:
    """The large layers themselves split: the first by columns, the second by rows."""
    model = _empty(rank, sharded=[True, True, False])
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        model.to_empty(device=rank.device)
        _initialise(rank, model)
    # Some parameters are shards and some are whole; the fused Adam refuses such a mixture.
    _train(rank, model, _optimizer(rank, model, fused=False), 0)


def _train(
    rank: Rank[Settings], model: nn.Module, optimizer: torch.optim.Optimizer, part: int
) -> None:
    """Forward, backward, update on this rank's samples: the same for every whole-batch strategy."""
    settings = rank.settings
    features, labels = training_batch(rank, part)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        losses = []
        for index in rank.steps(settings.num_samples // settings.batch_size):
            batch = slice(index * settings.batch_size, (index + 1) * settings.batch_size)
            loss = nn.functional.cross_entropy(model(features[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        graded = None
        if _is_last(rank, epoch):
            with rank.phase("validation"):
                graded = validate(model, held_out(rank))
        _report(rank, epoch, losses, graded)


def stages(rank: Rank[Settings]) -> None:
    """Each rank holds some of the layers and sends activations on and gradients back."""
    settings = rank.settings
    widths, cut = settings.widths, settings.num_first_stage_layers
    num_layers = len(widths) - 1
    rank.describe(description(widths, [[0]] * cut + [[1]] * (num_layers - cut)))
    own = widths[: cut + 1] if rank.rank == 0 else widths[cut:]
    model = mlp(own, device=rank.device)
    features, labels = training_batch(rank, 0)
    optimizer = _optimizer(rank, model)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        losses = []
        for index in rank.steps(settings.num_samples // settings.batch_size):
            batch = slice(index * settings.batch_size, (index + 1) * settings.batch_size)
            if rank.rank == 0:
                _first_stage_step(rank, model, features[batch])
            else:
                losses.append(_last_stage_step(rank, model, labels[batch], own[0]))
            optimizer.step()
            optimizer.zero_grad()
        graded = _validate_stages(rank, model, own[0]) if _is_last(rank, epoch) else None
        if losses:
            _report(rank, epoch, losses, graded)
        else:
            print(f"epoch {epoch} complete on rank {rank.rank}")


def _first_stage_step(rank: Rank[Settings], model: nn.Module, features: Tensor) -> None:
    """Compute the first layers, send the activation, wait for its gradient."""
    with rank.phase("forward"):  # ends before the rank waits
        activation = torch.relu(model(features))
    rank.send(activation.detach(), to=1)
    gradient = rank.receive(activation.shape, source=1)
    activation.backward(gradient)


def _last_stage_step(rank: Rank[Settings], model: nn.Module, labels: Tensor, width: int) -> float:
    """Receive the activation, compute the last layers and the loss, send the gradient back."""
    activation = rank.receive((len(labels), width), source=0).requires_grad_()
    loss = nn.functional.cross_entropy(model(activation), labels)
    loss.backward()
    assert activation.grad is not None
    rank.send(activation.grad, to=0)
    return loss.item()


@torch.no_grad()
def _validate_stages(
    rank: Rank[Settings], model: nn.Module, width: int
) -> tuple[int, float, float] | None:
    """The validation samples through both stages; the last one grades."""
    with rank.phase("validation"):
        samples = held_out(rank)
        if rank.rank == 0:
            rank.send(torch.relu(model(samples.features)), to=1)
            return None
        activation = rank.receive((len(samples.labels), width), source=0)
        loss, accuracy = grade(model(activation), samples.labels)
        return len(samples.labels), loss, accuracy


def _whole(rank: Rank[Settings]) -> nn.Sequential:
    """All layers on this rank's device."""
    widths = rank.settings.widths
    rank.describe(description(widths, [range(rank.world_size)] * (len(widths) - 1)))
    return mlp(widths, device=rank.device)


def _empty(rank: Rank[Settings], sharded: list[bool]) -> nn.Sequential:
    """All layers without memory, until ranks know which part of them is their own."""
    widths = rank.settings.widths
    everywhere = [range(rank.world_size)] * (len(widths) - 1)
    rank.describe(description(widths, everywhere, sharded=sharded))
    with torch.device("meta"):
        return mlp(widths)


@torch.no_grad()
def _initialise(rank: Rank[Settings], model: nn.Module) -> None:
    """Give parameters that were built without memory the values a linear layer starts with.

    Shards get values of their own on each rank; parameters that all hold whole get equal ones.
    """
    equal = torch.Generator(rank.device).manual_seed(rank.seed)
    own = torch.Generator(rank.device).manual_seed(rank.seed + 1 + rank.rank)
    for parameter in model.parameters():
        bound = parameter.shape[-1] ** -0.5
        is_shard = any(p.is_shard() for p in getattr(parameter, "placements", ()))
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        local.uniform_(-bound, bound, generator=own if is_shard else equal)


def _optimizer(
    rank: Rank[Settings], module: nn.Module, *, fused: bool = True
) -> torch.optim.Optimizer:
    rate = rank.settings.learning_rate
    if rank.settings.optimizer == "adam":
        return torch.optim.Adam(module.parameters(), lr=rate, fused=fused)
    return torch.optim.SGD(module.parameters(), lr=rate)


def _is_last(rank: Rank[Settings], epoch: int) -> bool:
    """Whether to look at the validation samples after this epoch."""
    return epoch == rank.settings.num_epochs and not rank.is_metered


def _report(
    rank: Rank[Settings],
    epoch: int,
    losses: list[float],
    graded: tuple[int, float, float] | None,
) -> None:
    mean = sum(losses) / len(losses)
    rank.epoch(epoch, loss=mean, num_samples=rank.settings.num_samples, validation=graded)
    print(f"epoch {epoch} complete on rank {rank.rank}, loss {mean:.4f}")


STRATEGIES = {
    "single": single,
    "ddp": ddp,
    "ddp_view": partial(ddp, view=True),
    "stages": stages,
    "tensor_parallel": tensor_parallel,
    "fsdp": fsdp,
}

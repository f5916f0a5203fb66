"""A model that does not fit: which strategies let it train, and which only seem to.

Two models of about the same size, one with a dominant layer (`wide`) and one of equal layers
(`deep`), trained on one device, under DDP, split into two stages by hand, with tensor parallelism
and under FSDP: each once without a limit, for its true peak, and once under a budget per rank.

    python -m runners run large_model
"""

from __future__ import annotations

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

from runners.experiments._large_model_forecast import CHOICES, forecast
from runners.experiments._large_model_plans import NUM_CLASSES, RUNS, TRIED_WITH, settle
from runners.ranks.rank import Rank
from runners.training.networks import description, grade, perceptron
from runners.training.steps import validate
from runners.training.teacher import Lesson, Rows, Scaling, teach

__all__ = ["CHOICES", "QUESTION", "RUNS", "STRATEGIES", "TRIED_WITH", "forecast", "settle"]

QUESTION = "Which strategies let a model train that does not fit one device's memory?"


def _whole(rank: Rank) -> nn.Sequential:
    """All layers on this rank's device."""
    widths = rank.settings.widths
    rank.describe(description(widths, [range(rank.world_size)] * (len(widths) - 1)))
    with rank.phase("build"):
        return perceptron(widths, device=rank.device)


def _lesson(rank: Rank) -> Lesson:
    """Rows of one teacher for all ranks, scaled; what is drawn on the way is let go at once."""
    settings = rank.settings
    lesson = teach(
        rank.seed,
        num_rows=settings.num_rows * settings.num_data_ranks,
        num_validation_rows=settings.num_validation_rows,
        num_features=settings.widths[0],
        num_classes=NUM_CLASSES,
        temperature=settings.teacher_temperature,
    )
    scaling = Scaling.of(lesson.training.features)
    return Lesson(
        Rows(2 * scaling.apply(lesson.training.features) - 1, lesson.training.labels),
        Rows(2 * scaling.apply(lesson.validation.features) - 1, lesson.validation.labels),
    )


def _rows(rank: Rank, part: int) -> tuple[Tensor, Tensor]:
    """This rank's own rows, a copy, so that the other ranks' rows are let go."""
    size = rank.settings.num_rows
    with rank.phase("rows"):
        own = _lesson(rank).training.take(torch.arange(part * size, (part + 1) * size))
        features, labels = own.features.to(rank.device), own.labels.to(rank.device)
        rank.rows(features, labels)
    return features, labels


def _held_out(rank: Rank) -> Rows:
    """The validation rows, drawn when they are needed: training keeps no room for them."""
    held_out = _lesson(rank).validation
    return Rows(held_out.features.to(rank.device), held_out.labels.to(rank.device))


def _optimizer(rank: Rank, module: nn.Module, *, fused: bool = True) -> torch.optim.Optimizer:
    rate = rank.settings.learning_rate
    if rank.settings.optimizer == "adam":
        return torch.optim.Adam(module.parameters(), lr=rate, fused=fused)
    return torch.optim.SGD(module.parameters(), lr=rate)


def _report(
    rank: Rank, epoch: int, losses: list[float], graded: tuple[int, float, float] | None
) -> None:
    mean = sum(losses) / len(losses)
    rank.epoch(epoch, loss=mean, num_samples=rank.settings.num_rows, validation=graded)
    print(f"epoch {epoch} complete on rank {rank.rank}, loss {mean:.4f}")


def _is_last(rank: Rank, epoch: int) -> bool:
    """Whether to look at the validation rows after this epoch."""
    return epoch == rank.settings.num_epochs and not rank.is_metered


def _train(rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, part: int) -> None:
    """Forward, backward, update, over this rank's rows: the same for every whole-batch strategy."""
    settings = rank.settings
    features, labels = _rows(rank, part)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        losses = []
        for index in rank.steps(settings.num_rows // settings.batch_size):
            batch = slice(index * settings.batch_size, (index + 1) * settings.batch_size)
            with rank.phase("forward"):
                loss = nn.functional.cross_entropy(model(features[batch]), labels[batch])
            with rank.phase("backward"):
                loss.backward()
            with rank.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        graded = None
        if _is_last(rank, epoch):
            with rank.phase("validation"):
                graded = validate(model, _held_out(rank))
        _report(rank, epoch, losses, graded)


def single(rank: Rank) -> None:
    """One device holds parameters, gradients and optimizer state of every layer."""
    model = _whole(rank)
    _train(rank, model, _optimizer(rank, model), 0)


def ddp(rank: Rank, *, view: bool = False) -> None:
    """A whole replica on every rank, and buckets to average gradients in."""
    model = _whole(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model, gradient_as_bucket_view=view)
    _train(rank, replica, _optimizer(rank, replica), rank.rank)


def ddp_view(rank: Rank) -> None:
    """DDP whose gradients live inside its buckets instead of beside them."""
    ddp(rank, view=True)


def fsdp(rank: Rank) -> None:
    """Each layer's parameters in shards; a layer is gathered whole while it computes."""
    widths = rank.settings.widths
    num_layers = len(widths) - 1
    everywhere = [range(rank.world_size)] * num_layers
    rank.describe(description(widths, everywhere, sharded=[True] * num_layers))
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("build"), torch.device("meta"):
        model = perceptron(widths)
    with rank.phase("wrap"):
        for module in model:
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model.to_empty(device=rank.device)
        _initialise(rank, model)
    _train(rank, model, _optimizer(rank, model), rank.rank)


@torch.no_grad()
def _initialise(rank: Rank, model: nn.Module) -> None:
    """Give parameters that were built without memory the values a linear layer starts with.

    What ranks share out gets values of its own on each; what all hold whole gets equal ones.
    """
    equal = torch.Generator(rank.device).manual_seed(rank.seed)
    own = torch.Generator(rank.device).manual_seed(rank.seed + 1 + rank.rank)
    for parameter in model.parameters():
        bound = parameter.shape[-1] ** -0.5
        is_shard = any(p.is_shard() for p in getattr(parameter, "placements", ()))
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        local.uniform_(-bound, bound, generator=own if is_shard else equal)


def tensor_parallel(rank: Rank) -> None:
    """The large layers themselves split: the first by columns, the second by rows."""
    widths = rank.settings.widths
    everywhere = [range(rank.world_size)] * (len(widths) - 1)
    rank.describe(description(widths, everywhere, sharded=[True, True, False]))
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("build"), torch.device("meta"):
        model = perceptron(widths)
    with rank.phase("wrap"):
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        model.to_empty(device=rank.device)
        _initialise(rank, model)
    # Some parameters are shards and some are whole; the fused Adam refuses such a mixture.
    _train(rank, model, _optimizer(rank, model, fused=False), 0)


def stages(rank: Rank) -> None:
    """Each rank holds some of the layers and passes activations on and gradients back."""
    settings = rank.settings
    widths = settings.widths
    cut = settings.num_first_stage_layers
    num_layers = len(widths) - 1
    rank.describe(description(widths, [[0]] * cut + [[1]] * (num_layers - cut)))
    own = widths[: cut + 1] if rank.rank == 0 else widths[cut:]
    with rank.phase("build"):
        model = perceptron(own, device=rank.device)
    features, labels = _rows(rank, 0)
    optimizer = _optimizer(rank, model)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        losses = []
        for index in rank.steps(settings.num_rows // settings.batch_size):
            batch = slice(index * settings.batch_size, (index + 1) * settings.batch_size)
            if rank.rank == 0:
                _first_stage_step(rank, model, features[batch])
            else:
                losses.append(_last_stage_step(rank, model, labels[batch], own[0]))
            with rank.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
        graded = _validate_stages(rank, model, own[0]) if _is_last(rank, epoch) else None
        if losses:
            _report(rank, epoch, losses, graded)
        else:
            print(f"epoch {epoch} complete on rank {rank.rank}")


def _first_stage_step(rank: Rank, model: nn.Module, features: Tensor) -> None:
    """Compute the first layers, pass the activation on, wait for its gradient."""
    with rank.phase("forward"):
        activation = torch.relu(model(features))
    rank.send(activation.detach(), to=1)
    gradient = rank.receive(activation.shape, source=1)
    with rank.phase("backward"):
        activation.backward(gradient)


def _last_stage_step(rank: Rank, model: nn.Module, labels: Tensor, width: int) -> float:
    """Take the activation, compute the last layers and the loss, pass the gradient back."""
    activation = rank.receive((len(labels), width), source=0).requires_grad_()
    with rank.phase("forward"):
        loss = nn.functional.cross_entropy(model(activation), labels)
    with rank.phase("backward"):
        loss.backward()
    assert activation.grad is not None
    rank.send(activation.grad, to=0)
    return loss.item()


@torch.no_grad()
def _validate_stages(rank: Rank, model: nn.Module, width: int) -> tuple[int, float, float] | None:
    """The validation rows through both stages; the last one grades."""
    with rank.phase("validation"):
        held_out = _held_out(rank)
        if rank.rank == 0:
            rank.send(torch.relu(model(held_out.features)), to=1)
            return None
        activation = rank.receive((len(held_out.labels), width), source=0)
        loss, accuracy = grade(model(activation), held_out.labels)
        return len(held_out.labels), loss, accuracy


STRATEGIES = {
    "single": single,
    "ddp": ddp,
    "ddp_view": ddp_view,
    "stages": stages,
    "tensor_parallel": tensor_parallel,
    "fsdp": fsdp,
}

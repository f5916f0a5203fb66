"""A model that does not fit: which strategies let it train, and which only seem to.

Two models of about the same size, one with a dominant layer (`wide`) and one of equal layers
(`deep`), trained on one device, under DDP, split into two stages by hand, with tensor parallelism
and under FSDP: each once without a limit, for its true peak, and once under a budget per rank.

    python -m runners run large_model
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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

from runners.experiment import RunPlan, whole_number
from runners.networks import description, grade, num_parameters, perceptron
from runners.rank import Rank
from runners.teacher import Lesson, Rows, Scaling, teach
from runners.trace import Setting, Status
from runners.training import validate

QUESTION = "Which strategies let a model train that does not fit one device's memory?"

WIDTHS: dict[str, tuple[int, ...]] = {
    "wide": (10000, 5000, 1000, 10),
    "deep": (2000,) * 15,
}
FIRST_STAGE_LAYERS = {"wide": 1, "deep": 7}  # how many layers rank 0 holds under `stages`
NUM_CLASSES = 10
NUM_STAGES = 2
BYTES_PER_VALUE = 4
# What training keeps of each parameter: itself and its gradient; Adam adds two moments.
COPIES = {"sgd": 2, "adam": 4}


def model_bytes(widths: Sequence[int]) -> int:
    """Bytes of all parameters: the closed form."""
    return BYTES_PER_VALUE * sum(num_parameters(widths))


def largest_stage_bytes(widths: Sequence[int], cut: int) -> int:
    """Bytes of the parameters of the larger of the two stages; rank 0 holds `cut` layers."""
    counts = num_parameters(widths)
    return BYTES_PER_VALUE * max(sum(counts[:cut]), sum(counts[cut:]))


def budget_bytes(model: str, optimizer: str) -> int:
    """Halfway between what the larger stage keeps and what the whole model keeps.

    One rule for both models and both optimizers; no run is measured to find it.
    """
    widths = WIDTHS[model]
    stage = largest_stage_bytes(widths, FIRST_STAGE_LAYERS[model])
    return COPIES[optimizer] * (stage + model_bytes(widths)) // 2


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the bytes of its model and of its parts worked out anew.

    Raises:
        ValueError: the widths make no network, or none that this strategy can split.
    """
    settings = dict(plan.settings)
    widths, cut = _checked_widths(plan), whole_number(settings, "num_first_stage_layers")
    optimizer = settings["optimizer"]
    if optimizer not in COPIES:
        raise ValueError(f"optimizer must be {' or '.join(COPIES)}, not {optimizer!r}")
    num_rows, batch_size = whole_number(settings, "num_rows"), whole_number(settings, "batch_size")
    if num_rows < batch_size:
        raise ValueError(f"num_rows {num_rows} are fewer than the {batch_size} of one batch")
    if cut >= len(widths) - 1:
        raise ValueError(f"num_first_stage_layers {cut} leaves the second stage no layer")
    settings |= {
        "model": next((m for m, known in WIDTHS.items() if list(known) == widths), "own"),
        "num_classes": NUM_CLASSES,
        "num_data_ranks": max(2, plan.world_size),  # also on one rank, so that rows stay the same
        "copies_per_parameter": COPIES[str(optimizer)],
        "bytes_per_value": BYTES_PER_VALUE,
        "model_bytes": model_bytes(widths),
        "largest_stage_bytes": largest_stage_bytes(widths, cut),
        "largest_layer_bytes": BYTES_PER_VALUE * max(num_parameters(widths)),
    }
    return replace(plan, settings=settings)


def _checked_widths(plan: RunPlan) -> list[int]:
    widths = plan.settings["widths"]
    assert isinstance(widths, list)
    numbers = [width for width in widths if isinstance(width, int) and width > 0]
    if len(numbers) < max(3, len(widths)):
        raise ValueError(f"widths must be three or more whole numbers above zero, not {widths}")
    if numbers[-1] < NUM_CLASSES:
        raise ValueError(f"the last of widths must be at least the {NUM_CLASSES} classes")
    if plan.strategy == "stages" and plan.world_size != NUM_STAGES:
        raise ValueError(f"the layers are cut into {NUM_STAGES} stages, so world_size stays so")
    if plan.strategy == "tensor_parallel" and numbers[1] % plan.world_size:
        raise ValueError(f"a width of {numbers[1]} cannot be split over {plan.world_size} ranks")
    return numbers


def _settings(model: str, optimizer: str) -> dict[str, Setting]:
    return {
        "widths": list(WIDTHS[model]),
        "num_first_stage_layers": FIRST_STAGE_LAYERS[model],
        "optimizer": optimizer,
        "batch_size": 10,
        "num_rows": 50,
        "num_validation_rows": 50,
        "teacher_temperature": 0.05,
        "num_epochs": 3 if optimizer == "sgd" else 1,
        "learning_rate": 0.01 if optimizer == "sgd" else 0.0001,
    }


FITS: Status = "completed"
FAILS: Status = "out_of_memory"
TOO_CLOSE = None  # the need lies within a hundredth of the budget: no run could show a rule
# model, optimizer → strategy → how it ends under the budget
EXPECTED: dict[tuple[str, str], dict[str, Status | None]] = {
    ("wide", "sgd"): {
        "single": FAILS,
        "ddp": FAILS,
        "stages": FITS,
        "tensor_parallel": FITS,
        "fsdp": FAILS,
    },
    ("deep", "sgd"): {"single": FAILS, "ddp": FAILS, "stages": FITS, "fsdp": FITS},
    ("wide", "adam"): {"single": FAILS, "stages": FITS, "tensor_parallel": FITS, "fsdp": TOO_CLOSE},
    ("deep", "adam"): {"single": FAILS, "ddp": FAILS, "stages": FITS, "fsdp": FITS},
}


def _plan(strategy: str, settings: dict[str, Setting]) -> RunPlan:
    """One free run: a few metered steps, for its true peak."""
    plan = RunPlan(
        strategy,
        1 if strategy == "single" else 2,
        settings,
        passes=("metered",),
        has_timeline=False,
        can_share_device=strategy not in ("fsdp", "tensor_parallel"),
    )
    return settle(plan)


def _plans() -> dict[str, RunPlan]:
    plans: dict[str, RunPlan] = {}
    for (model, optimizer), strategies in EXPECTED.items():
        settings = _settings(model, optimizer)
        prefix = model if optimizer == "sgd" else f"{model}_{optimizer}"
        for strategy, expected in strategies.items():
            free = _plan(strategy, settings)
            plans[f"{prefix}_{strategy}"] = free
            if strategy == "ddp" and optimizer == "sgd":
                plans[f"{prefix}_ddp_view"] = _plan("ddp_view", settings)
            if expected is None:
                continue
            plans[f"{prefix}_{strategy}_budget"] = replace(
                free,
                expected=expected,
                budget_bytes=budget_bytes(model, optimizer),
                passes=("budgeted",),
            )
    return plans


RUNS = _plans()
# A try of a run to the end takes seconds only with one epoch.
TRIED_WITH = {name: {"num_epochs": 1} for name, plan in RUNS.items() if plan.budget_bytes}


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

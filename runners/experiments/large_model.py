"""A model that does not fit: which strategies let it train, and which only seem to.

Two models of about the same size, one with a dominant layer (`wide`) and one of equal layers
(`deep`), trained on one device, under DDP, split into two stages by hand, with tensor parallelism
and under FSDP: each once without a limit, for its true peak, and once under a budget per rank.

    python -m runners run large_model
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import layer_parameters
from runners.ranks.rank import Rank
from runners.traces.schema import Setting, Status
from runners.training.networks import description, grade, mlp
from runners.training.steps import batch_of, validate
from runners.training.teacher import Lesson, Samples, Scaling, teach


def single(rank: Rank[Settings]) -> None:
    """One device holds parameters, gradients and optimizer state of every layer."""
    _train(rank, _whole(rank), part=0)


def ddp(rank: Rank[Settings], *, view: bool = False) -> None:
    """A whole replica on every rank, and buckets to average gradients in."""
    model = _whole(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model, gradient_as_bucket_view=view)
    _train(rank, replica, part=rank.rank)


def ddp_view(rank: Rank[Settings]) -> None:
    """The same, where gradients live inside the buckets instead of beside them."""
    ddp(rank, view=True)


def fsdp(rank: Rank[Settings]) -> None:
    """Each layer's parameters in shards; a layer is gathered whole while it computes."""
    model = _empty(rank, sharded=[True] * (len(rank.settings.widths) - 1))
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        for module in model:
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        _initialise(rank, model)
    _train(rank, model, part=rank.rank)


def tensor_parallel(rank: Rank[Settings]) -> None:
    """The large layers themselves split: the first by columns, the second by rows."""
    model = _empty(rank, sharded=[True, True, False])
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        _initialise(rank, model)
    # Some parameters are shards and some are whole; the fused Adam refuses such a mixture.
    _train(rank, model, part=0, fused=False)


def _train(rank: Rank[Settings], model: nn.Module, part: int, *, fused: bool = True) -> None:
    """Forward, backward, update on this rank's samples: the same for every whole-batch strategy."""
    settings = rank.settings
    samples, optimizer = _prepared(rank, model, part, fused=fused)
    for epoch in rank.epochs(settings.num_epochs):
        losses = []
        for index in rank.steps(settings.num_samples // settings.batch_size):
            batch = batch_of(samples, index, settings.batch_size)
            loss = cross_entropy(model(batch.features), batch.labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        graded = None
        if _is_last(rank, epoch):
            with rank.phase("validation"):
                graded = validate(model, _held_out(rank))
        _report(rank, epoch, losses, graded)


def stages(rank: Rank[Settings]) -> None:
    """Each rank holds some of the layers and sends activations on and gradients back."""
    settings = rank.settings
    widths, cut = settings.widths, settings.num_first_stage_layers
    rank.describe(description(widths, [[0]] * cut + [[1]] * (len(widths) - 1 - cut)))
    own = widths[: cut + 1] if rank.rank == 0 else widths[cut:]
    model = mlp(own, device=rank.device)
    samples, optimizer = _prepared(rank, model, part=0)
    for epoch in rank.epochs(settings.num_epochs):
        losses = []
        for index in rank.steps(settings.num_samples // settings.batch_size):
            batch = batch_of(samples, index, settings.batch_size)
            if rank.rank == 0:
                _first_stage_step(rank, model, batch.features)
            else:
                losses.append(_last_stage_step(rank, model, batch.labels, own[0]))
            optimizer.step()
            optimizer.zero_grad()
        graded = _validate_stages(rank, model, own[0]) if _is_last(rank, epoch) else None
        _report(rank, epoch, losses, graded)


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
    loss = cross_entropy(model(activation), labels)
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
        samples = _held_out(rank)
        if rank.rank == 0:
            rank.send(torch.relu(model(samples.features)), to=1)
            return None
        activation = rank.receive((len(samples.labels), width), source=0)
        return len(samples.labels), *grade(model(activation), samples.labels)


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
    model.to_empty(device=rank.device)
    equal = torch.Generator(rank.device).manual_seed(rank.seed)
    own = torch.Generator(rank.device).manual_seed(rank.seed + 1 + rank.rank)
    for parameter in model.parameters():
        bound = parameter.shape[-1] ** -0.5
        is_shard = any(p.is_shard() for p in getattr(parameter, "placements", ()))
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        local.uniform_(-bound, bound, generator=own if is_shard else equal)


def _prepared(
    rank: Rank[Settings], model: nn.Module, part: int, *, fused: bool = True
) -> tuple[Samples, torch.optim.Optimizer]:
    """A part of the samples, a copy, so that the other ranks' are freed; and the optimizer."""
    size, rate = rank.settings.num_samples, rank.settings.learning_rate
    with rank.phase("samples"):
        own = _lesson(rank).training.take(torch.arange(part * size, (part + 1) * size))
        samples = own.to(rank.device)
        rank.inputs(samples.features, samples.labels)
    optimizer: torch.optim.Optimizer
    if rank.settings.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=fused)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    rank.watch(model, optimizer)
    return samples, optimizer


def _held_out(rank: Rank[Settings]) -> Samples:
    """The validation samples, drawn when they are needed: training keeps no memory for them."""
    return _lesson(rank).validation.to(rank.device)


def _lesson(rank: Rank[Settings]) -> Lesson:
    """Samples of one teacher for all ranks, scaled; what else is drawn is freed at once."""
    settings = rank.settings
    lesson = teach(
        rank.seed,
        # At least two parts, so that one rank trains on the same samples.
        num_samples=settings.num_samples * settings.num_data_ranks,
        num_validation_samples=settings.num_validation_samples,
        num_features=settings.widths[0],
        num_classes=NUM_CLASSES,
        temperature=settings.teacher_temperature,
    )
    scaling = Scaling.of(lesson.training.features)
    return Lesson(
        Samples(2 * scaling.apply(lesson.training.features) - 1, lesson.training.labels),
        Samples(2 * scaling.apply(lesson.validation.features) - 1, lesson.validation.labels),
    )


def _is_last(rank: Rank[Settings], epoch: int) -> bool:
    """Whether to look at the validation samples after this epoch."""
    return epoch == rank.settings.num_epochs and not rank.is_metered


def _report(
    rank: Rank[Settings],
    epoch: int,
    losses: list[float],
    graded: tuple[int, float, float] | None,
) -> None:
    """Record an epoch where this rank knows its losses."""
    if not losses:
        print(f"epoch {epoch} complete on rank {rank.rank}")
        return
    mean = sum(losses) / len(losses)
    rank.epoch(epoch, loss=mean, num_samples=rank.settings.num_samples, validation=graded)
    print(f"epoch {epoch} complete on rank {rank.rank}, loss {mean:.4f}")


QUESTION = "Which strategies can train a model that does not fit one device's memory?"
WIDTHS: dict[str, tuple[int, ...]] = {
    "wide": (10000, 5000, 1000, 10),
    "deep": (2000,) * 15,
}
FIRST_STAGE_LAYERS = {"wide": 1, "deep": 7}  # how many layers rank 0 holds under `stages`
NUM_CLASSES = 10
NUM_STAGES = 2
BYTES_PER_VALUE = 4
Optimizer = Literal["sgd", "adam"]
# What training keeps of each parameter: itself and its gradient; Adam adds two moments.
COPIES: dict[Optimizer, int] = {"sgd": 2, "adam": 4}


class Settings(RunSettings):
    """A stack of linear layers, where it is cut into two stages, and how long it trains."""

    widths: tuple[Count, ...]
    num_first_stage_layers: Count
    optimizer: Optimizer
    batch_size: Count = 10
    num_samples: Count
    num_validation_samples: Count = 50
    teacher_temperature: Factor = 0.05
    num_epochs: Count
    learning_rate: Factor

    def check(self) -> None:
        """Refuse widths that make no network, or none that this strategy can split."""
        widths, cut, n = list(self.widths), self.num_first_stage_layers, self.world_size
        if len(widths) < 3:
            raise ValueError(f"widths must be three or more whole numbers above zero, not {widths}")
        if widths[-1] < NUM_CLASSES:
            raise ValueError(f"the last of widths must be at least the {NUM_CLASSES} classes")
        if self.strategy == "stages" and n != NUM_STAGES:
            raise ValueError(f"the layers are cut into {NUM_STAGES} stages, so world_size stays so")
        if self.strategy == "tensor_parallel" and widths[1] % n:
            raise ValueError(f"a width of {widths[1]} cannot be split over {n} ranks")
        if self.num_samples < self.batch_size:
            raise ValueError(
                f"num_samples {self.num_samples} are fewer than the {self.batch_size} of one batch"
            )
        if cut >= len(widths) - 1:
            raise ValueError(f"num_first_stage_layers {cut} leaves the second stage no layer")

    @property
    def num_data_ranks(self) -> int:
        """Ranks that samples are drawn for; at least two, so that one rank trains on the same."""
        return max(2, self.world_size)

    @property
    def layers_bytes(self) -> list[int]:
        """Parameters of each layer."""
        return [BYTES_PER_VALUE * count for count in layer_parameters(self.widths)]

    @property
    def largest_stage_bytes(self) -> int:
        """Parameters of the larger of the two stages."""
        layers, cut = self.layers_bytes, self.num_first_stage_layers
        return max(sum(layers[:cut]), sum(layers[cut:]))

    def closed_forms(self) -> dict[str, Setting]:
        """Bytes of parameters, and what training keeps of each."""
        known = {widths: name for name, widths in WIDTHS.items()}
        return {
            "model": known.get(self.widths, "own"),
            "num_classes": NUM_CLASSES,  # of the labels; the last layer may be wider
            "num_data_ranks": self.num_data_ranks,
            "copies_per_parameter": COPIES[self.optimizer],
            "bytes_per_value": BYTES_PER_VALUE,
            "model_bytes": sum(self.layers_bytes),
            "largest_stage_bytes": self.largest_stage_bytes,
            "largest_layer_bytes": max(self.layers_bytes),
        }

    def budget_bytes(self) -> int:
        """Halfway between what the larger stage keeps and what the whole model keeps.

        One rule for both models and both optimizers; no run is measured to find it.
        """
        return COPIES[self.optimizer] * (self.largest_stage_bytes + sum(self.layers_bytes)) // 2


FITS: Status = "completed"
FAILS: Status = "out_of_memory"
TOO_CLOSE = None  # the need lies within a hundredth of the budget: no run could show a rule
# model, optimizer → strategy → how it ends under the budget
EXPECTED: dict[tuple[str, Optimizer], dict[str, Status | None]] = {
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
# With Adam, these say of the wide model what others already say of the deep one.
FULL_RUNS = ("wide_adam_fsdp", "wide_adam_tensor_parallel", "wide_adam_stages_budget")


def _free(strategy: str, model: str, optimizer: Optimizer) -> RunPlan[Settings]:
    """A few metered steps without a limit, for the true peak."""
    settings = Settings(
        widths=WIDTHS[model],
        num_first_stage_layers=FIRST_STAGE_LAYERS[model],
        optimizer=optimizer,
        num_samples={"wide": 50, "deep": 20}[model],
        # The allocator refuses in the first step or not at all; one model trains for its losses.
        num_epochs=3 if (model, optimizer) == ("wide", "sgd") else 1,
        learning_rate=0.01 if optimizer == "sgd" else 0.0001,
    )
    return RunPlan(
        strategy,
        1 if strategy == "single" else 2,
        settings,
        passes=("metered",),
        has_timeline=False,
        can_share_device=strategy not in ("fsdp", "tensor_parallel"),
    )


def _plans() -> dict[str, RunPlan[Settings]]:
    plans: dict[str, RunPlan[Settings]] = {}
    for (model, optimizer), strategies in EXPECTED.items():
        prefix = model if optimizer == "sgd" else f"{model}_{optimizer}"
        for strategy, expected in strategies.items():
            plans[f"{prefix}_{strategy}"] = free = _free(strategy, model, optimizer)
            if strategy == "ddp" and optimizer == "sgd":
                plans[f"{prefix}_ddp_view"] = _free("ddp_view", model, optimizer)
            if expected is not None:
                budget = free.settings.budget_bytes()
                plans[f"{prefix}_{strategy}_budget"] = replace(
                    free, expected=expected, budget_bytes=budget, passes=("budgeted",)
                )
    return {name: replace(plan, full=name.startswith(FULL_RUNS)) for name, plan in plans.items()}


RUNS = _plans()
TRIED_WITH = {"*": {"num_epochs": 1}}

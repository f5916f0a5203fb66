"""DistributedDataParallel: replicas that stay equal because their gradients are averaged.

Four ranks train one small classifier on a shard of the rows each. Beside it: the same training on
a single device (the oracle), replicas that never synchronise, and features scaled shard by shard.

    python -m runners run ddp
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._ddp_shown import compare, follow
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work, teacher_bytes
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.records import Setting
from runners.training.networks import description, flat, perceptron
from runners.training.steps import lesson_for, optimizer_for, shard_of, train_epoch, validate
from runners.training.teacher import Lesson, Rows, Scaling

QUESTION = "Does training on four replicas with averaged gradients equal training on one device?"

SETTINGS: dict[str, Setting] = {
    "num_rows": 10000,
    "num_validation_rows": 1000,
    "num_features": 10,
    "num_hidden": 64,
    "num_classes": 4,
    "num_shards": 4,  # of the single device, which takes the rows in the order that ranks would
    "num_rows_per_shard": 2500,
    "batch_size": 25,
    "global_batch_size": 100,
    "num_epochs": 5,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "teacher_temperature": 0.15,
    "dtype": "float32",
    "scaling": "global",
    "order": "shuffled",
}
WORDS = {
    "dtype": ("float32", "float64"),
    "scaling": ("global", "per_shard"),
    "order": ("shuffled", "sorted"),
}
FLOAT64: dict[str, Setting] = {**SETTINGS, "dtype": "float64"}
ONE_BATCH: dict[str, Setting] = {"batch_size": 100}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what follows from its settings worked out anew.

    Raises:
        ValueError: the rows cannot be dealt out equally, or a word is none of its choices.
    """
    settings = dict(plan.settings)
    for name, words in WORDS.items():
        if settings[name] not in words:
            raise ValueError(f"{name} must be {' or '.join(words)}, not {settings[name]!r}")
    num_rows, batch_size = whole_number(settings, "num_rows"), whole_number(settings, "batch_size")
    num_shards = plan.world_size if plan.world_size > 1 else whole_number(settings, "num_shards")
    if num_rows % num_shards:
        raise ValueError(f"num_rows {num_rows} cannot be dealt out to {num_shards} equal shards")
    settings |= {
        "num_shards": num_shards,
        "num_rows_per_shard": num_rows // num_shards,
        "global_batch_size": batch_size * plan.world_size,
    }
    rows_of_a_rank = num_rows // plan.world_size
    if rows_of_a_rank < batch_size:
        raise ValueError(f"batch_size {batch_size} is more than a rank's {rows_of_a_rank} rows")
    return replace(plan, settings=settings)


SHORTER: dict[str, Setting] = {**SETTINGS, "num_epochs": 3}  # what scaling does shows early
DECLARED = {
    "ddp": RunPlan("ddp", 4, SETTINGS, keeps_steps=True),
    "single": RunPlan("single", 1, {**SETTINGS, **ONE_BATCH}),
    "ddp_fp64": RunPlan("ddp", 4, FLOAT64, passes=("timed",)),
    "single_fp64": RunPlan("single", 1, {**FLOAT64, **ONE_BATCH}, passes=("timed",)),
    "no_sync": RunPlan("no_sync", 4, SETTINGS),
    "per_shard_shuffled": RunPlan("ddp", 4, {**SHORTER, "scaling": "per_shard"}, passes=("timed",)),
    "per_shard_sorted": RunPlan(
        "ddp", 4, {**SHORTER, "scaling": "per_shard", "order": "sorted"}, passes=("timed",)
    ),
    "global_sorted": RunPlan("ddp", 4, {**SHORTER, "order": "sorted"}, passes=("timed",)),
    "ddp_two_ranks": RunPlan("ddp", 2, {**SETTINGS, "batch_size": 50}, passes=("timed",)),
}
RUNS = {name: settle(plan) for name, plan in DECLARED.items()}


CHOICES = (
    Choice(
        "faster",
        "Is a step on the same global batch faster on one device, or under DDP over four ranks?",
        ("single", "ddp"),
    ),
    Choice("ranks", "Is a step faster over two ranks, or over four?", ("ddp_two_ranks", "ddp")),
)


def forecast(plan: RunPlan) -> Work:
    """A small classifier: steps are the starting of operations; the peak is the drawing of rows."""
    settings = plan.settings
    features, hidden, classes, rows = (
        whole_number(settings, name)
        for name in ("num_features", "num_hidden", "num_classes", "batch_size")
    )
    alone = stack_work((features, hidden, classes), rows, momentum=True)
    num_rows = whole_number(settings, "num_rows") + whole_number(settings, "num_validation_rows")
    value_bytes = 8 if settings["dtype"] == "float64" else 4
    model = value_bytes * alone.optimizer_parameters
    return replace(
        alone,
        peak_bytes=teacher_bytes(num_rows, features, classes),
        num_operations=alone.num_operations + 9,  # the batch is cut out, and its rows are graded
        exchanges=(Exchange("all_reduce", model, 1, plan.world_size),)
        if plan.strategy == "ddp"
        else (),
        num_busy_ranks=plan.world_size,
    )


def _widths(rank: Rank) -> tuple[int, int, int]:
    settings = rank.settings
    return settings.num_features, settings.num_hidden, settings.num_classes


def _lesson(rank: Rank) -> Lesson:
    lesson = lesson_for(rank)
    if rank.settings.order == "shuffled":
        return lesson
    # Rows as a careless export leaves them: ordered by their first feature.
    order = lesson.training.features[:, 0].argsort(stable=True)
    return Lesson(lesson.training.take(order), lesson.validation)


def _interleave(rows: Rows, num_shards: int) -> Rows:
    """Reorder rows so that each global batch holds the same rows as one batch of every shard."""
    num_rows = len(rows.labels)
    shards = torch.arange(num_rows).view(num_shards, -1)
    return rows.take(shards.T.reshape(-1))


def _prepared(rank: Rank) -> tuple[Rows, Rows]:
    """This rank's rows, scaled, and the validation rows scaled as rank 0 would."""
    settings = rank.settings
    lesson = _lesson(rank)
    whole = lesson.training.features
    shards = shard_of(rank, lesson.training)
    with rank.stage("load", "take this rank's shard of the rows", whole, everywhere=True) as out:
        out(shards.features)
    per_shard = settings.scaling == "per_shard"
    scaling = Scaling.of(shards.features if per_shard else whole)
    operation = f"scale each feature by {'its shard' if per_shard else 'all rows'}' low and high"
    with rank.stage("scale", operation, shards.features, everywhere=True) as out:
        scaled = scaling.apply(shards.features)
        out(scaled)
    training = Rows(scaled.to(rank.device), shards.labels.to(rank.device))
    if rank.world_size == 1:
        training = _interleave(training, settings.num_shards)
    validation = Rows(
        scaling.apply(lesson.validation.features).to(rank.device),
        lesson.validation.labels.to(rank.device),
    )
    rank.rows(training.features, training.labels, validation.features, validation.labels)
    return training, validation


def _model(rank: Rank) -> nn.Module:
    """A replica from a seed of this rank's own, as careless scripts build it."""
    torch.manual_seed(rank.seed + rank.rank)
    dtype = getattr(torch, rank.settings.dtype)
    rank.describe(description(_widths(rank), [range(rank.world_size)] * 2, dtype))
    return perceptron(_widths(rank), dtype=dtype, device=rank.device)


def _train(rank: Rank, model: nn.Module, training: Rows, validation: Rows, *, sync: bool) -> None:
    """Train to the end; replicas report their own loss and digest each epoch."""
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    rank.outcome.start_parameter_digest = parameter_digest(model.parameters())
    context = nullcontext() if sync else model.no_sync()  # type: ignore[operator]
    with context:
        for epoch in rank.epochs(rank.settings.num_epochs):
            batch_size = rank.settings.batch_size
            loss, accuracy, count = train_epoch(rank, model, optimizer, training, batch_size)
            graded = validate(model, validation) if rank.rank == 0 and not rank.is_metered else None
            rank.epoch(
                epoch,
                loss=loss,
                accuracy=accuracy,
                num_samples=count,
                validation=graded,
                parameters=model.parameters(),
            )
            if rank.rank == 0:
                print(f"epoch {epoch}: loss {loss:.4f} on rank 0")


def single(rank: Rank) -> None:
    """The oracle: one device, the global batch, the same rows in the same order."""
    with rank.phase("build"):
        training, validation = _prepared(rank)
        model = _model(rank)
    _train(rank, model, training, validation, sync=True)


def ddp(rank: Rank) -> None:
    """One replica a rank; DDP averages gradients in every backward pass."""
    with rank.phase("build"):
        training, validation = _prepared(rank)
        model = _model(rank)
    rank.outcome.first_parameter_digest = parameter_digest(model.parameters())
    before = flat(model)
    with (
        rank.phase("wrap"),
        rank.stage(
            "wrap",
            "broadcast the parameters of rank zero to every replica",
            before,
            everywhere=True,
        ) as out,
    ):
        replica = DistributedDataParallel(model)
        out(flat(model))
    _train(rank, replica, training, validation, sync=True)
    if not rank.is_metered:
        compare(rank, replica.module, validation)
        _show_stages(rank, replica, training, validation)
        follow(rank, replica, optimizer_for(rank, replica), training)


def no_sync(rank: Rank) -> None:
    """Replicas start equal and never exchange a gradient."""
    with rank.phase("build"):
        training, validation = _prepared(rank)
        model = _model(rank)
    rank.outcome.first_parameter_digest = parameter_digest(model.parameters())
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    _train(rank, replica, training, validation, sync=False)
    if not rank.is_metered:
        compare(rank, replica.module, validation)


def _show_stages(rank: Rank, model: nn.Module, training: Rows, validation: Rows) -> None:
    """One more step and one more validation, to show their tensors."""
    batch = training.take(slice(0, rank.settings.batch_size))
    optimizer = optimizer_for(rank, model)
    with rank.stage(
        "train",
        "forward, loss, backward with all_reduce, update",
        batch.features,
        everywhere=True,
    ) as out:
        nn.functional.cross_entropy(model(batch.features), batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        out(flat(model))
    with (
        torch.no_grad(),
        rank.stage("validate", "forward without gradients", validation.features) as out,
    ):
        if rank.rank == 0:
            out(model(validation.features))


STRATEGIES = {"single": single, "ddp": ddp, "no_sync": no_sync}

"""What becomes of training when more ranks make the global batch larger, and how to avoid it.

Four ranks train the classifier of `ddp`, whose run `ddp_fp64` keeps the global batch of one device.
In `grown` each rank keeps the batch of the one device, so that fewer updates are left;
`grown_scaled` lets the learning rate follow. `accumulated` takes the large batch in small ones,
with `no_sync` until the last; `exchanged` does so without it.

    python -m runners run global_batch
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import PassName, RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work, teacher_bytes
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.steps import (
    Tally,
    batch_of,
    optimizer_for,
    perceptron_for,
    scaled_lesson,
    shard_of,
    validate,
)
from runners.training.teacher import Rows

QUESTION = "What changes when each rank keeps the batch that one device had?"
FULL = True

SETTINGS: dict[str, Setting] = {
    "num_rows": 10000,
    "num_validation_rows": 1000,
    "num_features": 10,
    "num_hidden": 64,
    "num_classes": 4,
    "batch_size": 100,
    "global_batch_size": 400,
    "num_updates": 125,
    "num_parts": 1,
    "num_epochs": 5,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "exchanges_each_part": False,
    "teacher_temperature": 0.15,
    "dtype": "float64",
}
IN_PARTS: dict[str, Setting] = {**SETTINGS, "num_parts": 4}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the global batch and the number of updates worked out anew.

    Raises:
        ValueError: the batch cannot be taken in so many parts, or a rank has less than one.
    """
    settings = dict(plan.settings)
    batch_size = whole_number(settings, "batch_size")
    if batch_size % whole_number(settings, "num_parts"):
        raise ValueError(
            f"batch_size {batch_size} cannot be taken in {settings['num_parts']} parts"
        )
    settings["global_batch_size"] = batch_size * plan.world_size
    rows = whole_number(settings, "num_rows") // plan.world_size
    settings["num_updates"] = rows // batch_size * whole_number(settings, "num_epochs")
    whole_number(settings, "num_updates")
    return replace(plan, settings=settings)


def _plan(settings: dict[str, Setting], *passes: PassName, **changed: Setting) -> RunPlan:
    return settle(RunPlan("train", 4, {**settings, **changed}, passes=passes, has_timeline=False))


RUNS = {
    "grown": _plan(SETTINGS, "timed"),
    "grown_scaled": _plan(SETTINGS, "timed", learning_rate=0.4),
    "accumulated": _plan(IN_PARTS, "timed", "metered"),
    "exchanged": _plan(IN_PARTS, "timed", "metered", exchanges_each_part=True),
}


CHOICES = (
    Choice(
        "no_sync",
        "Which update is faster: with an exchange after the last part, or after each?",
        ("accumulated", "exchanged"),
    ),
)


def forecast(plan: RunPlan) -> Work:
    """A small classifier, forward and backward once for each part, updated once."""
    settings, n = plan.settings, plan.world_size
    widths = tuple(whole_number(settings, f"num_{of}") for of in ("features", "hidden", "classes"))
    num_parts = whole_number(settings, "num_parts")
    part = stack_work(widths, whole_number(settings, "batch_size") // num_parts, momentum=True)
    num_rows = whole_number(settings, "num_rows") + whole_number(settings, "num_validation_rows")
    value_bytes = 8 if settings["dtype"] == "float64" else 4
    model = value_bytes * part.optimizer_parameters
    times = num_parts if settings["exchanges_each_part"] else 1
    return replace(
        part,
        peak_bytes=teacher_bytes(num_rows, widths[0], widths[-1]),
        flops=num_parts * part.flops,
        num_products=num_parts * part.num_products,
        moved_bytes=num_parts * part.moved_bytes,
        num_operations=12 + num_parts * (part.num_operations + 9),
        exchanges=(Exchange("all_reduce", times * model, times, n),),
        num_busy_ranks=n,
    )


def train(rank: Rank) -> None:
    """Train to the end: a step is one update, on a batch taken whole or in parts."""
    settings = rank.settings
    with rank.phase("build"):
        lesson = scaled_lesson(rank)
        rows = shard_of(rank, lesson.training)
        model = perceptron_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(len(rows.labels) // settings.batch_size):
            batch = batch_of(rows, index, settings.batch_size)
            update(rank, replica, optimizer, batch, tally)
        loss, accuracy, count = tally.seen()
        graded = None
        if rank.rank == 0 and not rank.is_metered:
            graded = validate(model, lesson.validation)
            print(f"epoch {epoch}: {graded[2]:.1%} of the validation rows right")
        rank.epoch(
            epoch,
            loss=loss,
            accuracy=accuracy,
            num_samples=count,
            validation=graded,
            parameters=model.parameters(),
        )


def update(
    rank: Rank,
    replica: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batch: Rows,
    tally: Tally,
) -> None:
    """One update: gradients of the parts add up, and travel with the last part only."""
    settings = rank.settings
    num_rows = settings.batch_size // settings.num_parts
    for part in range(settings.num_parts):
        own = batch_of(batch, part, num_rows)
        is_last = part == settings.num_parts - 1
        exchanges = is_last or settings.exchanges_each_part
        with nullcontext() if exchanges else replica.no_sync():
            with rank.phase("forward"):
                logits = replica(own.features)
                loss = nn.functional.cross_entropy(logits, own.labels)
            with rank.phase("backward"):
                (loss / settings.num_parts).backward()
        tally.add(loss.item(), logits, own.labels)
        rank.count_samples(num_rows)
    with rank.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()


STRATEGIES = {"train": train}

"""More ranks make the batch larger: what becomes of the learning rate, over the same samples.

One rank and several train the same classifier under DDP, each rank with the batch that the one
has, until the same number of samples is seen. The learning rate stays (`fixed`), grows with the
ranks (`scaled`), or grows to that during the first updates (`warmed`). In the `gentle` runs the
rate is so small that parameters hardly move, which is where linear scaling follows from arithmetic.

    python -m runners run batch_and_rate
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.steps import (
    Tally,
    batch_of,
    optimizer_for,
    perceptron_for,
    scaled_lesson,
    shard_of,
    train_step,
    validate,
)

QUESTION = "How must the learning rate follow the ranks, when each brings a batch of its own?"

SETTINGS: dict[str, Setting] = {
    "num_rows": 6400,
    "num_validation_rows": 1000,
    "num_features": 10,
    "num_hidden": 64,
    "num_classes": 4,
    "batch_size": 25,
    "num_epochs": 2,
    "num_looks": 8,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "teacher_temperature": 0.15,
    "dtype": "float64",
}
GENTLE: dict[str, Setting] = {
    **SETTINGS,
    "num_epochs": 1,
    "learning_rate": 0.001,
    "momentum": 0.0,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with its batch, its updates and its highest rate worked out anew.

    Raises:
        ValueError: the rows are no whole batches for the ranks, or no whole updates for the looks.
    """
    settings = dict(plan.settings)
    rows, batch_size = whole_number(settings, "num_rows"), whole_number(settings, "batch_size")
    if rows % plan.world_size or rows // plan.world_size % batch_size:
        raise ValueError(
            f"{rows} rows are no whole batches of {batch_size} for {plan.world_size} ranks"
        )
    updates = rows // plan.world_size // batch_size * whole_number(settings, "num_epochs")
    if updates % whole_number(settings, "num_looks"):
        raise ValueError(f"{updates} updates are no multiple of num_looks {settings['num_looks']}")
    settings["num_updates"] = updates
    settings["global_batch_size"] = batch_size * plan.world_size
    if plan.strategy == "warmed":
        whole_number(settings, "num_warm_up_updates")
    return replace(plan, settings=settings)


def _plan(strategy: str, ranks: int, settings: dict[str, Setting], **changed: Setting) -> RunPlan:
    plan = RunPlan(strategy, ranks, {**settings, **changed}, passes=("timed",), keeps_steps=True)
    return settle(replace(plan, has_timeline=False))


RUNS = {
    "one": _plan("fixed", 1, SETTINGS),
    "fixed": _plan("fixed", 4, SETTINGS),
    "scaled": _plan("scaled", 4, SETTINGS),
    "warmed": _plan("warmed", 4, SETTINGS, num_warm_up_updates=32),
    "fixed_eight": replace(_plan("fixed", 8, SETTINGS), full=True),
    "scaled_eight": replace(_plan("scaled", 8, SETTINGS), full=True),
    "warmed_eight": replace(_plan("warmed", 8, SETTINGS, num_warm_up_updates=16), full=True),
    "one_gentle": _plan("fixed", 1, GENTLE),
    "fixed_gentle": _plan("fixed", 4, GENTLE),
    "scaled_gentle": _plan("scaled", 4, GENTLE),
}
CHOICES = (
    Choice(
        "shortest",
        "Does an update of one rank or of four take the shorter time?",
        ("one", "fixed"),
    ),
)


def _train(rank: Rank, highest: float, num_warm_up_updates: int = 0) -> None:
    """Train to the end, and look at the validation rows after every so many samples.

    Args:
        rank: that trains.
        highest: learning rate once warm.
        num_warm_up_updates: over which the rate rises to it, from that of the settings.
    """
    settings = rank.settings
    with rank.phase("build"):
        lesson = scaled_lesson(rank)
        rows = shard_of(rank, lesson.training)
        model: nn.Module = perceptron_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model) if rank.world_size > 1 else model
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    rank.measure("first_loss", validate(model, lesson.validation)[1])
    tally, seen, losses, rates = Tally(), [], [], []
    between = settings.num_updates // settings.num_looks
    for index in rank.steps(settings.num_updates):
        warm = min(1.0, index / num_warm_up_updates) if num_warm_up_updates else 1.0
        rates.append(settings.learning_rate + warm * (highest - settings.learning_rate))
        optimizer.param_groups[0]["lr"] = rates[-1]
        batch = batch_of(
            rows, index % (len(rows.labels) // settings.batch_size), settings.batch_size
        )
        train_step(rank, replica, optimizer, batch, tally)
        if (index + 1) % between == 0:
            seen.append((index + 1) * settings.global_batch_size)
            losses.append(validate(model, lesson.validation)[1])
    loss, accuracy, count = tally.seen()
    graded = validate(model, lesson.validation) if rank.rank == 0 else None
    rank.epoch(1, loss=loss, accuracy=accuracy, num_samples=count, validation=graded)
    rank.measure("num_samples_seen", seen)
    rank.measure("validation_losses", losses)
    rank.measure("first_rate", rates[0])
    rank.measure("last_rate", optimizer.param_groups[0]["lr"])
    rank.measure("num_updates_done", len(rates))
    if graded is not None:
        print(f"validation loss {graded[1]:.4f} after {seen[-1]} samples in {len(rates)} updates")


def fixed(rank: Rank) -> None:
    """The rate that one rank had, however many there are."""
    _train(rank, rank.settings.learning_rate)


def scaled(rank: Rank) -> None:
    """The rate times the ranks, from the first update on."""
    _train(rank, rank.settings.learning_rate * rank.world_size)


def warmed(rank: Rank) -> None:
    """From the rate of one rank up to the rate times the ranks."""
    highest = rank.settings.learning_rate * rank.world_size
    _train(rank, highest, rank.settings.num_warm_up_updates)


STRATEGIES = {"fixed": fixed, "scaled": scaled, "warmed": warmed}


def forecast(plan: RunPlan) -> Work:
    """The work of one update: a small perceptron, its gradients averaged."""
    settings, n = plan.settings, plan.world_size
    widths = tuple(whole_number(settings, f"num_{of}") for of in ("features", "hidden", "classes"))
    alone = stack_work(
        widths, whole_number(settings, "batch_size"), momentum=bool(settings["momentum"])
    )
    value_bytes = 8 if settings["dtype"] == "float64" else 4
    gradients = Exchange("all_reduce", value_bytes * alone.optimizer_parameters, 1, n)
    return replace(
        alone,
        num_operations=alone.num_operations + 9,  # the batch is cut out, and its rows are graded
        exchanges=(gradients,) if n > 1 else (),
        num_busy_ranks=n,
    )

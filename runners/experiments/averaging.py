"""How often replicas must talk, and of what: gradients in each step, or parameters now and then.

Four ranks train the classifier of `ddp` on their own shards, as its run `ddp_fp64` does with DDP.
Here no gradient travels; the ranks average their parameters every so many steps: in each one, every
ten, once an epoch, once when training ends. With Adam, whose moments do not follow a gradient in
proportion, DDP stands beside it.

    python -m runners run averaging
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.records import Setting
from runners.training.networks import flat
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
from runners.training.teacher import Lesson

QUESTION = "Can replicas average their parameters, and less often than in every step?"
FULL = True

WORDS = {"optimizer": ("sgd", "adam"), "averages": ("parameters", "gradients")}
SETTINGS: dict[str, Setting] = {
    "num_rows": 10000,
    "num_validation_rows": 1000,
    "num_features": 10,
    "num_hidden": 64,
    "num_classes": 4,
    "batch_size": 25,
    "num_steps_per_epoch": 100,
    "num_epochs": 5,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "optimizer": "sgd",
    "averages": "parameters",
    "steps_between": 1,
    "teacher_temperature": 0.15,
    "dtype": "float64",
}
ADAM: dict[str, Setting] = {
    **SETTINGS,
    "optimizer": "adam",
    "learning_rate": 0.01,
    "num_epochs": 1,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the steps of an epoch counted anew.

    Raises:
        ValueError: a rank has less than one batch, or a word is none of its choices.
    """
    settings = dict(plan.settings)
    for name, words in WORDS.items():
        if settings[name] not in words:
            raise ValueError(f"{name} must be {' or '.join(words)}, not {settings[name]!r}")
    whole_number(settings, "steps_between")
    rows = whole_number(settings, "num_rows") // plan.world_size
    settings["num_steps_per_epoch"] = rows // whole_number(settings, "batch_size")
    whole_number(settings, "num_steps_per_epoch")
    return replace(plan, settings=settings)


def _plan(settings: dict[str, Setting], **changed: Setting) -> RunPlan:
    return settle(RunPlan("train", 4, {**settings, **changed}, passes=("timed",)))


RUNS = {
    "each_step": _plan(SETTINGS),
    "ten_steps": _plan(SETTINGS, steps_between=10),
    "each_epoch": _plan(SETTINGS, steps_between=100),
    "at_end": _plan(SETTINGS, steps_between=500),
    "gradients_adam": _plan(ADAM, averages="gradients"),
    "each_step_adam": _plan(ADAM),
}


CHOICES = (
    Choice(
        "seldom",
        "Which median step is faster: with an average in each, or in every tenth?",
        ("each_step", "ten_steps"),
    ),
)


def forecast(plan: RunPlan) -> Work:
    """A small classifier; the median step exchanges only where every step does."""
    settings, n = plan.settings, plan.world_size
    widths = tuple(whole_number(settings, f"num_{of}") for of in ("features", "hidden", "classes"))
    is_adam = settings["optimizer"] == "adam"
    alone = stack_work(widths, whole_number(settings, "batch_size"), momentum=not is_adam)
    value_bytes = 8 if settings["dtype"] == "float64" else 4
    parameters = Exchange("all_reduce", value_bytes * alone.optimizer_parameters, 1, n)
    often = settings["averages"] == "gradients" or settings["steps_between"] == 1
    return replace(
        alone,
        num_operations=alone.num_operations + 9 + (32 if is_adam else 0) + (12 if often else 0),
        exchanges=(parameters,) if often else (),
        num_busy_ranks=n,
    )


def average(model: nn.Module) -> None:
    """Give every replica the mean of the replicas' parameters."""
    with torch.no_grad():
        mean = flat(model)
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        parameters = list(model.parameters())
        pieces = mean.split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))


def train(rank: Rank) -> None:
    """Train to the end; average as the settings say."""
    settings = rank.settings
    with rank.phase("build"):
        lesson = scaled_lesson(rank)
        rows = shard_of(rank, lesson.training)
        model: nn.Module = perceptron_for(rank)
    by_gradients = settings.averages == "gradients"
    replica = DistributedDataParallel(model) if by_gradients else model
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    for epoch, tally in _epochs(rank):
        for index in rank.steps(settings.num_steps_per_epoch):
            batch = batch_of(rows, index, settings.batch_size)
            train_step(rank, replica, optimizer, batch, tally)
            if not by_gradients and (rank.step_index + 1) % settings.steps_between == 0:
                _average(rank, model, lesson)
        loss, accuracy, count = tally.seen()
        rank.epoch(
            epoch,
            loss=loss,
            accuracy=accuracy,
            num_samples=count,
            validation=validate(model, lesson.validation) if rank.rank == 0 else None,
            parameters=model.parameters(),
        )


def _epochs(rank: Rank) -> Iterator[tuple[int, Tally]]:
    for epoch in rank.epochs(rank.settings.num_epochs):
        yield epoch, Tally()


def _average(rank: Rank, model: nn.Module, lesson: Lesson) -> None:
    """Average the replicas; before and after the last time, look at each of them."""
    settings = rank.settings
    last = settings.num_epochs * settings.num_steps_per_epoch - 1
    if rank.step_index < last:
        average(model)
        return
    facts = _grades(rank, model, lesson)
    before = flat(model)
    with rank.predict("average", "average the replicas' parameters", before, facts) as out:
        average(model)
        after = flat(model)
        out(after)
        apart = (torch.linalg.norm(before - after) / torch.linalg.norm(after)).item()
        facts["distances"] = _of_all(rank, apart)
        _, facts["validation_loss"], facts["validation_accuracy"] = validate(
            model, lesson.validation
        )


def _grades(rank: Rank, model: nn.Module, lesson: Lesson) -> dict[str, Setting]:
    """How each replica does on rows that none was trained on, and whether they are equal."""
    _, loss, accuracy = validate(model, lesson.validation)
    digests: list[str] = [""] * rank.world_size
    dist.all_gather_object(digests, parameter_digest(model.parameters()))
    return {
        "validation_losses": _of_all(rank, loss),
        "validation_accuracies": _of_all(rank, accuracy),
        "num_distinct": len(set(digests)),
    }


def _of_all(rank: Rank, value: float) -> list[float]:
    """The value of every rank, on every rank."""
    values = [0.0] * rank.world_size
    dist.all_gather_object(values, value)
    return values


STRATEGIES = {"train": train}

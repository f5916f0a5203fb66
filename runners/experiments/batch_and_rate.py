"""More ranks make the batch larger: what becomes of the learning rate, over the same samples.

One rank and several train the same classifier under DDP, each rank with the batch that the one
has, until the same number of samples is seen. In the `gentle` runs the rate is so small that
parameters hardly move, which is where linear scaling follows from arithmetic.

    python -m runners run batch_and_rate
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, closed_form
from runners.ranks.rank import Rank
from runners.training.settings import GlobalBatchSettings
from runners.training.steps import (
    Epoch,
    batch_of,
    mlp_for,
    optimizer_for,
    scaled_lesson,
    shard_of,
    train_batch,
    validate,
)


def fixed(rank: Rank[Settings]) -> None:
    """The rate that one rank had, however many there are."""
    _train(rank, rank.settings.learning_rate)


def scaled(rank: Rank[Settings]) -> None:
    """The rate times the ranks, from the first update on."""
    _train(rank, rank.settings.learning_rate * rank.world_size)


def warmed(rank: Rank[WarmedSettings]) -> None:
    """From the rate of one rank up to the rate times the ranks."""
    highest = rank.settings.learning_rate * rank.world_size
    _train(rank, highest, rank.settings.num_warm_up_updates)


def _train(rank: Rank[Settings], highest: float, num_warm_up_updates: int = 0) -> None:
    """Train to the end, and look at the validation samples after every so many samples.

    Args:
        rank: that trains.
        highest: learning rate once warm.
        num_warm_up_updates: over which the rate rises to it, from that of the settings.
    """
    settings = rank.settings
    lesson = scaled_lesson(rank)
    samples = shard_of(rank, lesson.training)
    model: nn.Module = mlp_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model) if rank.world_size > 1 else model
    optimizer = optimizer_for(rank, model)
    rank.watch(replica, optimizer)
    rank.measure("first_loss", validate(model, lesson.validation)[1])
    epoch, losses, rates = Epoch(rank, 1), [], []
    num_batches = len(samples.labels) // settings.batch_size
    between = settings.num_updates // settings.num_looks
    for index in rank.steps(settings.num_updates):
        warm = min(1.0, index / num_warm_up_updates) if num_warm_up_updates else 1.0
        rates.append(settings.learning_rate + warm * (highest - settings.learning_rate))
        optimizer.param_groups[0]["lr"] = rates[-1]
        batch = batch_of(samples, index % num_batches, settings.batch_size)
        train_batch(replica, optimizer, batch, epoch)
        if (index + 1) % between == 0:
            losses.append(validate(model, lesson.validation)[1])
    epoch.close(validate(model, lesson.validation) if rank.rank == 0 else None)
    rank.measure("validation_losses", losses)
    rank.measure("first_rate", rates[0])
    rank.measure("last_rate", rates[-1])
    rank.measure("num_updates_done", len(rates))


QUESTION = "How should the learning rate change with the ranks when each rank brings its own batch?"


class Settings(GlobalBatchSettings):
    """A small classifier, and the learning rate of one rank."""

    num_samples: Count = 6400
    num_epochs: Count = 2
    num_looks: Count = 8
    learning_rate: Factor = 0.05
    equal_parts = (("num_samples", "global_batch_size"), ("num_updates", "num_looks"))

    @closed_form
    def num_updates(self) -> int:
        """In all epochs."""
        return self.num_samples // self.global_batch_size * self.num_epochs


class WarmedSettings(Settings):
    """The learning rate rises over the first updates."""

    num_warm_up_updates: Count


def _plan(strategy: str, ranks: int, settings: Settings) -> RunPlan:
    return RunPlan(strategy, ranks, settings, passes=("timed",), keeps_steps=True)


GENTLE = Settings(num_epochs=1, learning_rate=0.001, momentum=0.0)
RUNS = {
    "one": _plan("fixed", 1, Settings()),
    "fixed": _plan("fixed", 4, Settings()),
    "scaled": _plan("scaled", 4, Settings()),
    "warmed": _plan("warmed", 4, WarmedSettings(num_warm_up_updates=32)),
    "fixed_eight": replace(_plan("fixed", 8, Settings()), full=True),
    "scaled_eight": replace(_plan("scaled", 8, Settings()), full=True),
    "warmed_eight": replace(_plan("warmed", 8, WarmedSettings(num_warm_up_updates=16)), full=True),
    "one_gentle": _plan("fixed", 1, GENTLE),
    "fixed_gentle": _plan("fixed", 4, GENTLE),
    "scaled_gentle": _plan("scaled", 4, GENTLE),
}
TRIED_WITH = {"*": {"num_samples": 3200}}

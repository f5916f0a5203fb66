"""More ranks make the batch larger: what becomes of the learning rate, over the same samples.

One rank and several train the same classifier under DDP until the same number of samples is seen.
In the `gentle` runs the rate is so small that parameters hardly move, which is where linear scaling
follows from arithmetic.

    python -m runners run batch_and_rate
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from runners.closed_forms.training_settings import GlobalBatchSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, Factor
from runners.core.ranks.rank import Rank
from runners.training import steps


def fixed(rank: Rank[Settings]) -> None:
    """The rate that one rank had, however many there are."""
    _train(rank, lambda _: rank.settings.learning_rate)


def scaled(rank: Rank[Settings]) -> None:
    """The rate times the ranks, from the first update on."""
    _train(rank, lambda _: rank.settings.learning_rate * rank.world_size)


def warmed(rank: Rank[WarmedSettings]) -> None:
    """From the rate of one rank up to the rate times the ranks."""
    first, num_updates = rank.settings.learning_rate, rank.settings.num_warm_up_updates
    highest = first * rank.world_size
    _train(rank, lambda index: first + min(1.0, index / num_updates) * (highest - first))


def _train(rank: Rank[Settings], rate_of: Callable[[int], float]) -> None:
    """Train with the rate of each update; look at the validation samples now and then."""
    settings = rank.settings
    lesson = steps.scaled_lesson(rank)
    samples = steps.shard_of(rank, lesson.training)
    model = steps.mlp_for(rank)
    replica = steps.replica_of(rank, model) if rank.world_size > 1 else model
    optimizer = steps.optimizer_for(rank, model)
    rank.watch(replica, optimizer)
    rank.measure("first_loss", steps.validate(model, lesson.validation)[1], unit="loss")
    epoch, losses, rates = steps.Epoch(rank, 1), [], []
    num_batches = len(samples.labels) // settings.batch_size
    between = settings.num_updates // settings.num_looks
    for index in rank.steps(settings.num_updates):
        rates.append(rate_of(index))
        optimizer.param_groups[0]["lr"] = rates[-1]
        batch = steps.batch_of(samples, index % num_batches, settings.batch_size)
        steps.train_batch(replica, optimizer, batch, epoch)
        if (index + 1) % between == 0:
            losses.append(steps.validate(model, lesson.validation)[1])
    epoch.close(steps.validate(model, lesson.validation))
    rank.measure("validation_losses", losses, unit="loss")
    rank.measure("first_rate", rates[0])
    rank.measure("last_rate", rates[-1])
    rank.measure("num_updates_done", len(rates), unit="updates")


QUESTION = "How should the learning rate change with the ranks when each rank brings its own batch?"


class Settings(GlobalBatchSettings):
    """A small classifier, and the learning rate of one rank."""

    num_samples: Count = 6400
    num_epochs: Count = 2
    num_looks: Count = 8
    learning_rate: Factor = 0.05
    equal_parts = (("num_samples", "global_batch_size"), ("num_updates", "num_looks"))


class WarmedSettings(Settings):
    """The learning rate rises over the first updates."""

    num_warm_up_updates: Count


timed = partial(Declaration, passes=("timed",), keeps_steps=True)
GENTLE = Settings(num_epochs=1, learning_rate=0.001, momentum=0.0)
RUNS = {
    "one": timed("fixed", 1, Settings()),
    "fixed": timed("fixed", 4, Settings()),
    "scaled": timed("scaled", 4, Settings()),
    "warmed": timed("warmed", 4, WarmedSettings(num_warm_up_updates=32)),
    "fixed_eight": timed("fixed", 8, Settings(), full=True),
    "scaled_eight": timed("scaled", 8, Settings(), full=True),
    "warmed_eight": timed("warmed", 8, WarmedSettings(num_warm_up_updates=16), full=True),
    "one_gentle": timed("fixed", 1, GENTLE),
    "fixed_gentle": timed("fixed", 4, GENTLE),
    "scaled_gentle": timed("scaled", 4, GENTLE),
}
TRIED_WITH = {"*": {"num_samples": 3200}}

"""DDP with the learning rate of one rank, with that times the ranks, and with a warm-up to it."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.batch_and_rate import Settings, WarmedSettings
from runners.ranks.rank import Rank
from runners.training.steps import (
    Tally,
    batch_of,
    mlp_for,
    optimizer_for,
    scaled_lesson,
    shard_of,
    train_step,
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
    tally, seen, losses, rates = Tally(), [], [], []
    num_batches = len(samples.labels) // settings.batch_size
    between = settings.num_updates // settings.num_looks
    for index in rank.steps(settings.num_updates):
        warm = min(1.0, index / num_warm_up_updates) if num_warm_up_updates else 1.0
        rates.append(settings.learning_rate + warm * (highest - settings.learning_rate))
        optimizer.param_groups[0]["lr"] = rates[-1]
        batch = batch_of(samples, index % num_batches, settings.batch_size)
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


STRATEGIES = {"fixed": fixed, "scaled": scaled, "warmed": warmed}

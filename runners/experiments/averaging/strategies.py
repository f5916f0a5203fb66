"""Replicas that average their parameters every so many steps, or their gradients by DDP."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.averaging import Settings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.schema import Setting
from runners.training.networks import flat
from runners.training.steps import (
    Tally,
    batch_of,
    mlp_for,
    of_all_ranks,
    optimizer_for,
    scaled_lesson,
    shard_of,
    train_step,
    validate,
)
from runners.training.teacher import Samples


def train(rank: Rank[Settings]) -> None:
    """Train to the end; average as the settings say."""
    settings = rank.settings
    lesson = scaled_lesson(rank)
    samples = shard_of(rank, lesson.training)
    model: nn.Module = mlp_for(rank)
    by_gradients = settings.averages == "gradients"
    replica = DistributedDataParallel(model) if by_gradients else model
    optimizer = optimizer_for(rank, model)
    rank.watch(replica, optimizer)
    last = settings.num_epochs * settings.num_steps_per_epoch - 1
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(settings.num_steps_per_epoch):
            batch = batch_of(samples, index, settings.batch_size)
            train_step(rank, replica, optimizer, batch, tally)
            if not by_gradients and (rank.step_index + 1) % settings.steps_between == 0:
                if rank.step_index < last:
                    average(model)
                else:
                    _average_and_compare(rank, model, lesson.validation)
        loss, accuracy, count = tally.seen()
        rank.epoch(
            epoch,
            loss=loss,
            accuracy=accuracy,
            num_samples=count,
            validation=validate(model, lesson.validation) if rank.rank == 0 else None,
            parameters=model.parameters(),
        )


@torch.no_grad()
def average(model: nn.Module) -> None:
    """Give every replica the mean of the replicas' parameters."""
    mean = flat(model)
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    parameters = list(model.parameters())
    pieces = mean.split([p.numel() for p in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.copy_(piece.view_as(parameter))


def _average_and_compare(rank: Rank[Settings], model: nn.Module, validation: Samples) -> None:
    """Average the replicas, and look at each of them before and after."""
    _, loss, accuracy = validate(model, validation)
    facts: dict[str, Setting] = {
        "validation_losses": [*of_all_ranks(rank, loss)],
        "validation_accuracies": [*of_all_ranks(rank, accuracy)],
        "num_distinct": len(set(of_all_ranks(rank, parameter_digest(model.parameters())))),
    }
    before = flat(model)
    with rank.predict("average", "average the replicas' parameters", before, facts) as out:
        average(model)
        after = flat(model)
        out(after)
        apart = (torch.linalg.norm(before - after) / torch.linalg.norm(after)).item()
        facts["distances"] = [*of_all_ranks(rank, apart)]
        _, facts["validation_loss"], facts["validation_accuracy"] = validate(model, validation)


STRATEGIES = {"train": train}

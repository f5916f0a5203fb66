"""DDP on batches that are taken whole, or in parts with `no_sync` until the last."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.global_batch import Settings
from runners.ranks.rank import Rank
from runners.training.steps import (
    Tally,
    batch_of,
    forward_backward,
    mlp_for,
    optimizer_for,
    scaled_lesson,
    shard_of,
    validate,
)
from runners.training.teacher import Samples


def train(rank: Rank[Settings]) -> None:
    """Train to the end: a step is one update, on a batch taken whole or in parts."""
    settings = rank.settings
    lesson = scaled_lesson(rank)
    samples = shard_of(rank, lesson.training)
    model = mlp_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    optimizer = optimizer_for(rank, model)
    rank.watch(replica, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(len(samples.labels) // settings.batch_size):
            batch = batch_of(samples, index, settings.batch_size)
            _update(rank, replica, optimizer, batch, tally)
        loss, accuracy, count = tally.seen()
        graded = None
        if rank.rank == 0 and not rank.is_metered:
            graded = validate(model, lesson.validation)
            print(f"epoch {epoch}: {graded[2]:.1%} of the validation samples right")
        rank.epoch(
            epoch,
            loss=loss,
            accuracy=accuracy,
            num_samples=count,
            validation=graded,
            parameters=model.parameters(),
        )


def _update(
    rank: Rank[Settings],
    replica: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batch: Samples,
    tally: Tally,
) -> None:
    """One update: gradients of the parts add up, and are reduced with the last part only."""
    settings = rank.settings
    num_samples = settings.batch_size // settings.num_parts
    for part in range(settings.num_parts):
        own = batch_of(batch, part, num_samples)
        is_last = part == settings.num_parts - 1
        reduces = is_last or settings.reduces_each_part
        with nullcontext() if reduces else replica.no_sync():
            logits, loss = forward_backward(replica, own, settings.num_parts)
        tally.add(loss.item(), logits, own.labels)
        rank.count_samples(num_samples)
        del logits, loss  # else they would lie in memory until the next part is through backward
    optimizer.step()
    optimizer.zero_grad()


STRATEGIES = {"train": train}

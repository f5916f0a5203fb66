"""Ranks that wait: for a slow rank, now and then or in each step, and for more samples."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.stragglers import Joined, Paced, Settings, SometimesSlowLocal
from runners.experiments.stragglers.oracle import compare, num_distinct, shards
from runners.ranks.rank import Rank
from runners.training.steps import (
    Tally,
    batch_of,
    mlp_for,
    scaled_lesson,
    train_step,
    validate,
)


def synchronous(rank: Rank[Paced]) -> None:
    """Gradients are averaged in every step, so every step waits for its slowest rank."""
    model = mlp_for(rank)
    _paced(
        rank,
        model,
        lambda _: _average(rank, [p.grad for p in model.parameters() if p.grad is not None]),
    )


def local(rank: Rank[SometimesSlowLocal]) -> None:
    """Parameters are averaged every few steps: slow steps of different ranks pass side by side."""
    model = mlp_for(rank)

    def communicate(index: int) -> None:
        if (index + 1) % rank.settings.steps_between == 0:
            _average(rank, [p.detach() for p in model.parameters()])

    _paced(rank, model, communicate)


def joined(rank: Rank[Joined]) -> None:
    """DDP over unequal shards: a rank without a batch takes part with zeros until all are done."""
    settings = rank.settings
    lesson = scaled_lesson(rank)
    every = shards(lesson.training, settings.num_batches_per_rank, settings.batch_size)
    model = mlp_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    optimizer = _optimizer(rank, model)
    rank.watch(replica, optimizer)
    tally, by_initial = Tally(), settings.divides_by == "initial"
    own = every[rank.rank]
    with replica.join(divide_by_initial_world_size=by_initial):
        for index in rank.steps(settings.num_batches_per_rank[rank.rank]):
            batch = batch_of(own, index, settings.batch_size)
            train_step(rank, replica, optimizer, batch, tally)
    loss, accuracy, count = tally.seen()
    graded = validate(model, lesson.validation) if rank.rank == 0 else None
    rank.epoch(
        1,
        loss=loss,
        accuracy=accuracy,
        num_samples=count,
        validation=graded,
        parameters=model.parameters(),
    )
    compare(rank, model, every, lesson.validation)


def _optimizer(rank: Rank[Settings], model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)


def _paced(rank: Rank[Paced], model: nn.Module, communicate: Callable[[int], None]) -> None:
    """Sleep, compute, communicate: the sleep is the rank's own work, of a length set beforehand."""
    settings = rank.settings
    samples = scaled_lesson(rank).training
    optimizer = _optimizer(rank, model)
    rank.watch(model, optimizer)
    own = settings.lengths()[rank.rank]
    waited, num_long = [], 0
    if rank.world_size > 1:
        dist.barrier()
    start = time.perf_counter()
    for index in rank.steps(settings.num_steps):
        began = time.perf_counter()
        with rank.phase("forward"):  # the sleep too, of which no hook knows
            time.sleep(own[index])
            loss = nn.functional.cross_entropy(model(samples.features), samples.labels)
        loss.backward()
        rank.settle()
        before = time.perf_counter()
        with rank.phase("communicate", computes=False):
            communicate(index)
        rank.settle()
        waited.append(time.perf_counter() - before)
        num_long += time.perf_counter() - began >= settings.slow_seconds
        optimizer.step()
        optimizer.zero_grad()
        rank.count_samples(len(samples.labels))
    rank.measure_seconds("training", [time.perf_counter() - start])
    rank.measure_seconds("waiting", waited)
    rank.measure("num_own_slow_steps", sum(length > settings.pace_seconds for length in own))
    rank.measure("num_long_steps", num_long)
    rank.measure("num_distinct", num_distinct(rank, model))


@torch.no_grad()
def _average(rank: Rank[Paced], tensors: list[torch.Tensor]) -> None:
    """Put the mean over the ranks into the tensors, in one all-reduce."""
    mean = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(mean)
    mean /= rank.world_size
    for tensor, piece in zip(tensors, mean.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))


STRATEGIES = {"synchronous": synchronous, "local": local, "joined": joined}

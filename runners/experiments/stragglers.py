"""Who waits for whom: slow ranks in synchronous steps, and ranks that run out of rows.

In the paced runs a rank's own work is a sleep of a set length beside a small model, so that what
is waited for is known: one rank that is always slow, and ranks that are slow now and then, which
average their gradients in every step or their parameters every few. In the `joined` runs ranks have
unequal shards, and `Join` lets those that are done answer for the others; beside them rank 0 trains
all replicas in one process.

    python -m runners run stragglers
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._stragglers_plans import CHOICES, RUNS, forecast, lengths, settle, shards
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.training.networks import flat
from runners.training.steps import (
    Tally,
    batch_of,
    perceptron_for,
    scaled_lesson,
    train_step,
    validate,
)
from runners.training.teacher import Rows

__all__ = ["CHOICES", "QUESTION", "RUNS", "STRATEGIES", "forecast", "settle"]

QUESTION = "How long is a step in which one rank is slow, and what if ranks have unequal rows?"


def _optimizer(rank: Rank, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)


def _paced(rank: Rank, model: nn.Module, exchange: Callable[[int], None]) -> None:
    """Sleep, compute, exchange: the sleep is the rank's own work, of a length set beforehand."""
    settings = rank.settings
    rows = scaled_lesson(rank).training
    optimizer = _optimizer(rank, model)
    rank.watch(model, optimizer)
    own = lengths(rank.plan)[rank.rank]
    waited, num_long = [], 0
    if rank.world_size > 1:
        dist.barrier()
    start = time.perf_counter()
    for index in rank.steps(settings.num_steps):
        began = time.perf_counter()
        with rank.phase("forward"):
            time.sleep(own[index])
            loss = nn.functional.cross_entropy(model(rows.features), rows.labels)
        with rank.phase("backward"):
            loss.backward()
        rank.settle()
        before = time.perf_counter()
        with rank.phase("exchange", computes=False):
            exchange(index)
        rank.settle()
        waited.append(time.perf_counter() - before)
        num_long += time.perf_counter() - began >= settings.slow_seconds
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        rank.count_samples(len(rows.labels))
    rank.measure_seconds("training", [time.perf_counter() - start])
    rank.measure_seconds("waiting", waited)
    rank.measure("num_own_slow_steps", sum(length > settings.pace_seconds for length in own))
    rank.measure("num_long_steps", num_long)
    rank.measure("num_distinct", _num_distinct(rank, model))


def synchronous(rank: Rank) -> None:
    """Gradients are averaged in every step, so every step waits for its slowest rank."""
    with rank.phase("build"):
        model = perceptron_for(rank)
    _paced(rank, model, lambda _: _average(rank, [_given(p) for p in model.parameters()]))


def local(rank: Rank) -> None:
    """Parameters are averaged every few steps: slow steps of different ranks pass side by side."""
    with rank.phase("build"):
        model = perceptron_for(rank)

    def exchange(index: int) -> None:
        if (index + 1) % rank.settings.steps_between == 0:
            _average(rank, [p.detach() for p in model.parameters()])

    _paced(rank, model, exchange)


def _given(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


@torch.no_grad()
def _average(rank: Rank, tensors: list[torch.Tensor]) -> None:
    """Put the mean over the ranks into the tensors, in one exchange."""
    mean = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(mean)
    mean /= rank.world_size
    for tensor, piece in zip(tensors, mean.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))


def _num_distinct(rank: Rank, model: nn.Module) -> int:
    digests = [parameter_digest(model.parameters())] * rank.world_size
    dist.all_gather_object(digests, digests[0])
    return len(set(digests))


def joined(rank: Rank) -> None:
    """DDP over unequal shards: who has no batch left takes part with zeros until all are done."""
    settings = rank.settings
    with rank.phase("build"):
        lesson = scaled_lesson(rank)
        every = shards(lesson.training, settings.num_batches_per_rank, settings.batch_size)
        model = perceptron_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    optimizer = _optimizer(rank, model)
    rank.watch(model, optimizer)
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
    rank.measure("num_distinct", _num_distinct(rank, model))
    if rank.rank == 0:
        oracle = _in_one_process(rank, every)
        rank.measure("oracle_loss", validate(oracle, lesson.validation)[1])
        apart = torch.linalg.norm(flat(oracle) - flat(model)) / torch.linalg.norm(flat(oracle))
        rank.measure("oracle_distance", float(apart))


def _in_one_process(rank: Rank, every: list[Rows]) -> nn.Module:
    """The oracle: the same batches, their gradients added up by hand, on one model."""
    settings = rank.settings
    model = perceptron_for(rank)
    optimizer = _optimizer(rank, model)
    for index in range(max(settings.num_batches_per_rank)):
        size = settings.batch_size
        left = [s for s in every if len(s.labels) >= (index + 1) * size]
        by = len(every) if settings.divides_by == "initial" else len(left)
        for shard in left:
            batch = batch_of(shard, index, size)
            (nn.functional.cross_entropy(model(batch.features), batch.labels) / by).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


STRATEGIES = {"synchronous": synchronous, "local": local, "joined": joined}

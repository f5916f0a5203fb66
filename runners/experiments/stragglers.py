"""Who waits for whom: slow ranks in synchronous steps, and ranks that run out of samples.

In the paced runs a rank's own work is a sleep of a set length beside a small model, so that what
is waited for is known. In the `joined` runs ranks have unequal shards; beside them rank 0 trains
all replicas in one process.

    python -m runners run stragglers
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from proofbook.runners.api import (
    Count,
    CountOrZero,
    Declaration,
    FactorOrZero,
    Seconds,
    Setting,
    closed_form,
)
from proofbook.runners.closed_forms.training_settings import FourClassSettings
from proofbook.runners.training import steps
from proofbook.runners.training.networks import average, gradients_of
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.teacher import Samples


def synchronous(rank: Rank[Paced]) -> None:
    """Gradients are averaged in every step, so every step waits for its slowest rank."""
    model = steps.mlp_for(rank)
    for _ in _paced_steps(rank, model):
        average(gradients_of(model))


def local(rank: Rank[SometimesSlowLocal]) -> None:
    """Parameters are averaged every few steps: slow steps of different ranks pass side by side."""
    model = steps.mlp_for(rank)
    for index in _paced_steps(rank, model):
        if (index + 1) % rank.settings.steps_between == 0:
            average(list(model.parameters()))


def _paced_steps(rank: Rank[Paced], model: nn.Module) -> Iterator[int]:
    """Steps that sleep, which is work of a set length, compute, and let the ranks communicate."""
    settings, samples = rank.settings, steps.scaled_lesson(rank).training
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    own = settings.lengths()[rank.rank]
    waited, num_long = [], 0
    dist.barrier()
    for index in rank.steps(settings.num_steps):
        began = time.perf_counter()
        with rank.phase("forward"):  # the sleep too, of which no hook knows
            time.sleep(own[index])
            loss = cross_entropy(model(samples.features), samples.labels)
        loss.backward()
        rank.settle()
        before = time.perf_counter()
        with rank.phase("communicate", computes=False):
            yield index
        rank.settle()
        waited.append(time.perf_counter() - before)
        num_long += time.perf_counter() - began >= settings.slow_seconds
        optimizer.step()
        optimizer.zero_grad()
        rank.count_samples(len(samples.labels))
    rank.measure_seconds("training", [sum(rank.outcome.step_seconds)])
    rank.measure_seconds("waiting", waited)
    rank.measure("num_own_slow_steps", sum(length > settings.pace_seconds for length in own))
    rank.measure("num_long_steps", num_long, repeats="clock")
    rank.measure("num_distinct", steps.num_distinct(rank, model.parameters()))


def joined(rank: Rank[Joined]) -> None:
    """Build and train replicas under DDP's `join` on unequal shards; record an oracle's loss."""
    settings, lesson, model = rank.settings, steps.scaled_lesson(rank), steps.mlp_for(rank)
    sizes = [count * settings.batch_size for count in settings.num_batches_per_rank]
    indices = torch.arange(settings.num_samples).split(sizes)
    shards = [lesson.training.take(index) for index in indices]
    replica = steps.replica_of(rank, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(replica, optimizer)
    epoch = steps.EpochProgress(rank, 1)
    with replica.join(divide_by_initial_world_size=settings.divides_by == "initial"):
        for batch in epoch.batches(shards[rank.rank], settings.batch_size):
            steps.train_batch(replica, optimizer, batch, epoch)
    epoch.close(steps.validate(model, lesson.validation), model.parameters())
    rank.measure("num_distinct", steps.num_distinct(rank, model.parameters()))
    if rank.rank == 0:
        oracle = _in_one_process(rank, shards)
        rank.measure("oracle_loss", steps.validate(oracle, lesson.validation)[1], unit="loss")


def _in_one_process(rank: Rank[Joined], shards: list[Samples]) -> nn.Module:
    """The oracle: the same batches, their gradients added up by hand, on one model."""
    settings, size, model = rank.settings, rank.settings.batch_size, steps.mlp_for(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    for index in range(max(settings.num_batches_per_rank)):
        left = [shard for shard in shards if len(shard.labels) >= (index + 1) * size]
        by = len(shards) if settings.divides_by == "initial" else len(left)
        for shard in left:
            steps.forward_backward(model, steps.batch_of(shard, index, size), by)
        optimizer.step()
        optimizer.zero_grad()
    return model


QUESTION = "How long is a step in which one rank is slow, or in which ranks have unequal samples?"


class Settings(FourClassSettings):
    """A smaller classifier."""

    num_validation_samples: Count = 200
    num_hidden: Count = 16


class Paced(Settings):
    """Steps whose length on each rank is set beforehand."""

    num_samples: Count = 16
    num_validation_samples: Count = 1
    num_steps: Count = 24
    pace_seconds: Seconds = 0.005
    slow_seconds: Seconds = 0.03

    @abstractmethod
    def lengths(self) -> list[list[float]]:
        """Seconds of each rank's own work in each step."""

    @closed_form
    def expected_seconds(self) -> float:
        """Seconds expected of the training: of each stretch those of its slowest rank, added up.

        Ranks wait for each other in every step, or only where they average.
        """
        own, between = self.lengths(), getattr(self, "steps_between", 1)
        return sum(
            max(sum(of_rank[start : start + between]) for of_rank in own)
            for start in range(0, self.num_steps, between)
        )

    @closed_form
    def mean_rank_seconds(self) -> float:
        """Seconds of a rank's own work in all steps together, as a mean over the ranks."""
        return sum(map(sum, self.lengths())) / self.world_size


class AlwaysSlow(Paced):
    """One rank is slow in every step."""

    num_steps: Count = 8
    pace_seconds: Seconds = 0.02
    slow_seconds: Seconds = 0.08
    slow_rank: CountOrZero = 3

    def lengths(self) -> list[list[float]]:
        """Seconds of each rank's own work in each step."""
        slow, pace, ranks = self.slow_seconds, self.pace_seconds, range(self.world_size)
        return [[slow if rank == self.slow_rank else pace] * self.num_steps for rank in ranks]


class SometimesSlow(Paced):
    """Every rank is slow now and then, as the seed decides; gradients are averaged each step."""

    slow_share: FactorOrZero = 0.2

    def lengths(self) -> list[list[float]]:
        """Seconds of own work as `[rank][step]`: slow or at the pace, by `slow_share` and seed."""
        source, slow, pace = random.Random(self.seed), self.slow_seconds, self.pace_seconds

        def length() -> float:
            return slow if source.random() < self.slow_share else pace

        return [[length() for _ in range(self.num_steps)] for _ in range(self.world_size)]


class SometimesSlowLocal(SometimesSlow):
    """The same ranks; their parameters are averaged every few steps."""

    steps_between: Count = 8


class Joined(Settings):
    """Unequal shards."""

    num_samples: Count = 700
    batch_size: Count = 25
    num_batches_per_rank: tuple[Count, ...] = (10, 8, 6, 4)
    divides_by: Literal["initial", "remaining"] = "initial"

    def forced(self) -> dict[str, Setting]:
        """There are as many samples as the ranks have batches."""
        return {"num_samples": self.batch_size * sum(self.num_batches_per_rank)}


timed = partial(Declaration, world_size=4, passes=("timed",))
RUNS = {
    "one_slow": Declaration("synchronous", 4, AlwaysSlow(), nature="paced", has_timeline=True),
    "sometimes": timed("synchronous", settings=SometimesSlow(), nature="paced"),
    "sometimes_local": timed("local", settings=SometimesSlowLocal(), nature="paced"),
    "joined": timed("joined", settings=Joined()),
    "joined_remaining": timed("joined", settings=Joined(divides_by="remaining")),
}

"""Who waits for whom: slow ranks in synchronous steps, and ranks that run out of samples.

In the paced runs a rank's own work is a sleep of a set length beside a small model, so that what
is waited for is known: one rank that is always slow, and ranks that are slow now and then, which
average their gradients in every step or their parameters every few. In the `joined` runs ranks have
unequal shards, and `Join` lets those that are done answer for the others; beside them rank 0 trains
all replicas in one process.

    python -m runners run stragglers
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import torch
import torch.distributed as dist
from pydantic import Field
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.schema import Setting
from runners.training.networks import flat
from runners.training.settings import HiddenLayerSettings
from runners.training.steps import Epoch, batch_of, mlp_for, of_all_ranks, scaled_lesson, validate
from runners.training.teacher import Samples


def synchronous(rank: Rank[Paced]) -> None:
    """Gradients are averaged in every step, so every step waits for its slowest rank."""
    model = mlp_for(rank)

    def communicate(_: int) -> None:
        _average(rank, [p.grad for p in model.parameters() if p.grad is not None])

    _train_paced(rank, model, communicate)


def local(rank: Rank[SometimesSlowLocal]) -> None:
    """Parameters are averaged every few steps: slow steps of different ranks pass side by side."""
    model = mlp_for(rank)

    def communicate(index: int) -> None:
        if (index + 1) % rank.settings.steps_between == 0:
            _average(rank, [p.detach() for p in model.parameters()])

    _train_paced(rank, model, communicate)


def _train_paced(rank: Rank[Paced], model: nn.Module, communicate: Callable[[int], None]) -> None:
    """Sleep, compute, communicate: the sleep is the rank's own work, of a length set beforehand."""
    settings = rank.settings
    samples = scaled_lesson(rank).training
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
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
            loss = cross_entropy(model(samples.features), samples.labels)
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
    rank.measure("num_distinct", _num_distinct(rank, model))


@torch.no_grad()
def _average(rank: Rank[Paced], tensors: list[torch.Tensor]) -> None:
    """Put the mean over the ranks into the tensors, in one all-reduce."""
    mean = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(mean)
    mean /= rank.world_size
    for tensor, piece in zip(tensors, mean.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))


def joined(rank: Rank[Joined]) -> None:
    """DDP over unequal shards: a rank without a batch takes part with zeros until all are done."""
    settings = rank.settings
    lesson = scaled_lesson(rank)
    shards = shards_of(lesson.training, settings.num_batches_per_rank, settings.batch_size)
    model = mlp_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(replica, optimizer)
    epoch = Epoch(rank, 1)
    with replica.join(divide_by_initial_world_size=settings.divides_by == "initial"):
        for batch in epoch.batches(shards[rank.rank], settings.batch_size):
            logits = replica(batch.features)
            loss = cross_entropy(logits, batch.labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            epoch.add(loss, logits, batch.labels)
    mean, accuracy, count = epoch.seen()
    rank.epoch(
        1,
        loss=mean,
        accuracy=accuracy,
        num_samples=count,
        validation=validate(model, lesson.validation) if rank.rank == 0 else None,
        parameters=model.parameters(),
    )
    rank.measure("num_distinct", _num_distinct(rank, model))
    if rank.rank == 0:
        oracle = _in_one_process(rank, shards)
        rank.measure("oracle_loss", validate(oracle, lesson.validation)[1])
        apart = torch.linalg.norm(flat(oracle) - flat(model)) / torch.linalg.norm(flat(oracle))
        rank.measure("oracle_distance", float(apart))


def _in_one_process(rank: Rank[Joined], shards: list[Samples]) -> nn.Module:
    """The oracle: the same batches, their gradients added up by hand, on one model."""
    settings, size = rank.settings, rank.settings.batch_size
    model = mlp_for(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    for index in range(max(settings.num_batches_per_rank)):
        left = [shard for shard in shards if len(shard.labels) >= (index + 1) * size]
        by = len(shards) if settings.divides_by == "initial" else len(left)
        for shard in left:
            batch = batch_of(shard, index, size)
            (cross_entropy(model(batch.features), batch.labels) / by).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def shards_of(samples: Samples, num_batches: Sequence[int], batch_size: int) -> list[Samples]:
    """Each rank's part of the samples, one after another, as many batches as it is given."""
    ends = accumulate((count * batch_size for count in num_batches), initial=0)
    return [samples.take(slice(start, end)) for start, end in pairwise(ends)]


def _num_distinct(rank: Rank[Settings], model: nn.Module) -> int:
    """How many different sets of parameters the ranks hold."""
    return len(set(of_all_ranks(rank, parameter_digest(model.parameters()))))


QUESTION = "How long is a step in which one rank is slow, or in which ranks have unequal samples?"
Pace = Annotated[float, Field(ge=0, lt=10)]  # seconds
Share = Annotated[float, Field(ge=0, le=1)]


class Settings(HiddenLayerSettings):
    """A small classifier."""

    num_validation_samples: Count = 200
    num_features: Count = 10
    num_hidden: Count = 16
    num_classes: Count = 4
    learning_rate: Factor = 0.1
    teacher_temperature: Factor = 0.15
    dtype: Literal["float32", "float64"] = "float64"


class Paced(Settings):
    """Steps whose length on each rank is set beforehand."""

    num_samples: Count = 16
    num_validation_samples: Count = 1
    num_steps: Count = 24
    pace_seconds: Pace = 0.005
    slow_seconds: Pace = 0.03

    @abstractmethod
    def lengths(self) -> list[list[float]]:
        """Seconds of each rank's own work in each step."""

    def closed_forms(self) -> dict[str, Setting]:
        """Seconds of the training and of a rank's own work.

        Expected is the sum of what each stretch waits for, its slowest rank: ranks wait for each
        other in every step, or only where they average.
        """
        own = self.lengths()
        between = getattr(self, "steps_between", 1)
        stretches = [
            max(sum(of_rank[start : start + between]) for of_rank in own)
            for start in range(0, self.num_steps, between)
        ]
        return {
            "expected_seconds": sum(stretches),
            "busiest_rank_seconds": max(map(sum, own)),
            "mean_rank_seconds": sum(map(sum, own)) / len(own),
        }


class AlwaysSlow(Paced):
    """One rank is slow in every step."""

    num_steps: Count = 8
    pace_seconds: Pace = 0.02
    slow_seconds: Pace = 0.08
    slow_rank: CountOrZero = 3

    def lengths(self) -> list[list[float]]:
        """Seconds of each rank's own work in each step."""
        return [
            [self.slow_seconds if rank == self.slow_rank else self.pace_seconds] * self.num_steps
            for rank in range(self.world_size)
        ]

    def check(self) -> None:
        """Refuse a rank that there is not."""
        if self.slow_rank >= self.world_size:
            raise ValueError(
                f"slow_rank must be one of {self.world_size} ranks, not {self.slow_rank}"
            )


class SometimesSlow(Paced):
    """Every rank is slow now and then, as the seed decides; gradients are averaged each step."""

    slow_share: Share = 0.2

    def lengths(self) -> list[list[float]]:
        """Seconds of each rank's own work in each step."""
        source = random.Random(self.seed)
        return [
            [
                self.slow_seconds if source.random() < self.slow_share else self.pace_seconds
                for _ in range(self.num_steps)
            ]
            for _ in range(self.world_size)
        ]

    def closed_forms(self) -> dict[str, Setting]:
        """Steps in which some rank is slow, too: their share over seeds, and those of this seed."""
        steps = zip(*self.lengths(), strict=True)
        return {
            **super().closed_forms(),
            "slow_step_share": 1 - (1 - self.slow_share) ** self.world_size,
            "num_steps_with_slow": sum(max(one) >= self.slow_seconds for one in steps),
        }


class SometimesSlowLocal(SometimesSlow):
    """The same ranks; their parameters are averaged every few steps."""

    steps_between: Count = 8

    def check(self) -> None:
        """Refuse steps after the last average."""
        self.divides(("num_steps", "steps_between"))


class Joined(Settings):
    """Unequal shards."""

    num_samples: Count = 700
    batch_size: Count = 25
    num_batches_per_rank: tuple[Count, ...] = (10, 8, 6, 4)
    divides_by: Literal["initial", "remaining"] = "initial"

    def forced(self) -> dict[str, Setting]:
        """There are as many samples as the ranks have batches."""
        return {"num_samples": self.batch_size * sum(self.num_batches_per_rank)}

    def check(self) -> None:
        """Refuse batches for other ranks than these."""
        if len(self.num_batches_per_rank) != self.world_size:
            raise ValueError(
                f"num_batches_per_rank must give each of {self.world_size} ranks at least one"
            )


def _plan(strategy: str, settings: Settings, **more: Any) -> RunPlan[Settings]:
    return RunPlan(strategy, 4, settings, passes=("timed",), has_timeline=False, **more)


RUNS = {
    "one_slow": RunPlan("synchronous", 4, AlwaysSlow(), nature="paced"),
    "sometimes": _plan("synchronous", SometimesSlow(), nature="paced"),
    "sometimes_local": _plan("local", SometimesSlowLocal(), nature="paced"),
    "joined": _plan("joined", Joined()),
    "joined_remaining": _plan("joined", Joined(divides_by="remaining")),
}

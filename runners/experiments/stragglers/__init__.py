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
from abc import abstractmethod
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor
from runners.traces.schema import Setting
from runners.training.settings import HiddenLayerSettings

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

    @property
    def steps_of_a_stretch(self) -> int:
        """Steps after which ranks wait for each other."""
        return 1

    @cached_property
    def expected_seconds(self) -> float:
        """The sum of what each stretch waits for: its slowest rank."""
        own, between = self.lengths(), self.steps_of_a_stretch
        return sum(
            max(sum(of_rank[start : start + between]) for of_rank in own)
            for start in range(0, self.num_steps, between)
        )

    @cached_property
    def busiest_rank_seconds(self) -> float:
        """Of the rank with most work of its own."""
        return max(map(sum, self.lengths()))

    @cached_property
    def mean_rank_seconds(self) -> float:
        """Of a rank's own work, at the mean."""
        own = self.lengths()
        return sum(map(sum, own)) / len(own)


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

    @cached_property
    def slow_step_share(self) -> float:
        """Of steps in which some rank is slow, at the mean over seeds."""
        return 1 - (1 - self.slow_share) ** self.world_size

    @cached_property
    def num_steps_with_slow(self) -> int:
        """Steps in which some rank is slow, with this seed."""
        steps = zip(*self.lengths(), strict=True)
        return sum(max(of_step) >= self.slow_seconds for of_step in steps)


class SometimesSlowLocal(SometimesSlow):
    """The same ranks; their parameters are averaged every few steps."""

    steps_between: Count = 8

    @property
    def steps_of_a_stretch(self) -> int:
        """Steps after which ranks wait for each other."""
        return self.steps_between

    def check(self) -> None:
        """Refuse steps after the last average."""
        if self.num_steps % self.steps_between:
            raise ValueError(
                f"num_steps {self.num_steps} is no multiple of steps_between {self.steps_between}"
            )


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


def _paced(strategy: str, settings: Paced) -> RunPlan[Paced]:
    return RunPlan(strategy, 4, settings, passes=("timed",), nature="paced", has_timeline=False)


RUNS = {
    "one_slow": RunPlan("synchronous", 4, AlwaysSlow(), nature="paced"),
    "sometimes": _paced("synchronous", SometimesSlow()),
    "sometimes_local": _paced("local", SometimesSlowLocal()),
    "joined": RunPlan("joined", 4, Joined(), passes=("timed",), has_timeline=False),
    "joined_remaining": RunPlan(
        "joined", 4, Joined(divides_by="remaining"), passes=("timed",), has_timeline=False
    ),
}

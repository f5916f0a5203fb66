"""When ranks agree: in every step, now and then, late, once at the end, or never.

Two ranks train one small classifier on their own shards with plain SGD. `synchronous` is DDP; in
`local_H` each rank trains alone for H steps before parameters are averaged; in `stale_T` the mean
gradient is applied T steps after it was computed, so that nobody waits for it; `at_end` averages
once, `never` not at all. Beside them one device, a bound on how far replicas drift, and the largest
learning rate that a gradient of that age allows on a parabola.

    python -m runners run synchronization
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor, RunSettings
from runners.plans.work import mlp_parameters
from runners.training.settings import HiddenLayerSettings

QUESTION = "How often must replicas synchronize, and how stale may their gradients be?"


class Settings(HiddenLayerSettings):
    """A small classifier that the ranks train on a shard each."""

    num_samples: Count = 6400
    num_validation_samples: Count = 1000
    num_features: Count = 10
    num_hidden: Count = 64
    num_classes: Count = 4
    batch_size: Count = 50
    num_steps: Count = 128
    learning_rate: Factor = 0.2
    teacher_temperature: Factor = 0.15
    dtype: Literal["float32", "float64"] = "float64"
    order: Literal["shuffled", "by_class"] = "shuffled"

    @cached_property
    def model_bytes(self) -> int:
        """Of all parameters."""
        widths = (self.num_features, self.num_hidden, self.num_classes)
        return (8 if self.dtype == "float64" else 4) * mlp_parameters(widths)

    @property
    def shards(self) -> int:
        """Into how many shards the samples are cut."""
        return self.world_size

    def check(self) -> None:
        """Refuse samples that leave a batch of a shard unfilled."""
        samples, size, shards = self.num_samples, self.batch_size, self.shards
        if samples % shards or samples // shards % size:
            raise ValueError(
                f"num_samples {samples} are no whole batches of {size} for {shards} shards"
            )


class SingleSettings(Settings):
    """One device, which takes in a step what so many ranks would."""

    num_shards: Count = 2

    @property
    def shards(self) -> int:
        """Into how many shards the samples are cut."""
        return self.num_shards


class LocalSettings(Settings):
    """Ranks train alone for some steps before their parameters are averaged."""

    steps_between: Count

    @cached_property
    def num_averages(self) -> int:
        """In the whole training."""
        return self.num_steps // self.steps_between

    def check(self) -> None:
        """Refuse a training that does not end with an average."""
        super().check()
        steps, between = self.num_steps, self.steps_between
        if steps % between:
            raise ValueError(f"num_steps {steps} is no multiple of steps_between {between}")


class StaleSettings(Settings):
    """Mean gradients are applied some steps late."""

    delay: CountOrZero


class ParabolaSettings(RunSettings):
    """Gradients of each age on a parabola."""

    delays: tuple[CountOrZero, ...] = (0, 1, 4, 16)
    num_steps: Count = 4000
    num_halvings: Count = 14

    @cached_property
    def largest_rates(self) -> list[float]:
        """By the closed form."""
        return [largest_rate(delay) for delay in self.delays]


def largest_rate(delay: int) -> float:
    """The largest learning rate at which SGD with gradients that old still goes down on x²/2.

    `x ← x − rate · x`, taken `delay` steps ago, is stable below 2·sin(π / (2·(2·delay + 1))).
    """
    return 2 * math.sin(math.pi / (2 * (2 * delay + 1)))


def _plan(strategy: str, settings: RunSettings, ranks: int = 2) -> RunPlan:
    return RunPlan(
        strategy, ranks, settings, passes=("timed",), keeps_steps=True, has_timeline=False
    )


RUNS = {
    "single": _plan("single", SingleSettings(), 1),
    "synchronous": _plan("synchronous", Settings()),
    "local_1": _plan("local", LocalSettings(steps_between=1)),
    "local_8": _plan("local", LocalSettings(steps_between=8)),
    "local_32": _plan("local", LocalSettings(steps_between=32)),
    "at_end": _plan("local", LocalSettings(steps_between=128)),
    "never": _plan("never", Settings()),
    "stale_0": _plan("stale", StaleSettings(delay=0)),
    "stale_4": _plan("stale", StaleSettings(delay=4)),
    "stale_16": _plan("stale", StaleSettings(delay=16)),
    "synchronous_by_class": _plan("synchronous", Settings(order="by_class")),
    "local_32_by_class": _plan("local", LocalSettings(steps_between=32, order="by_class")),
    "parabola": _plan("parabola", ParabolaSettings(), 1),
}

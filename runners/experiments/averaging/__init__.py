"""How often replicas must communicate, and what: gradients each step, or parameters now and then.

Four ranks train the classifier of `ddp` on their own shards, as its run `ddp_fp64` does with DDP.
Here no gradient travels; the ranks average their parameters every so many steps: in each one, every
ten, once an epoch, once when training ends. With Adam, whose moments do not follow a gradient in
proportion, DDP is measured beside it.

    python -m runners run averaging
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count
from runners.training.settings import SmallClassifierSettings

QUESTION = (
    "Can replicas average their parameters instead of their gradients, and less "
    "often than every step?"
)


class Settings(SmallClassifierSettings):
    """A small classifier on a shard for each rank, and what the ranks average, how often."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    averages: Literal["parameters", "gradients"] = "parameters"
    steps_between: Count = 1

    @cached_property
    def num_steps_per_epoch(self) -> int:
        """Of each rank."""
        return self.num_samples // self.world_size // self.batch_size

    def check(self) -> None:
        """Refuse samples that leave a rank without a batch."""
        if not self.num_steps_per_epoch:
            raise ValueError("num_steps_per_epoch must be a whole number above zero, not 0")


def _plan(settings: Settings) -> RunPlan:
    return RunPlan("train", 4, settings, passes=("timed",))


def _adam(averages: Literal["parameters", "gradients"]) -> Settings:
    return Settings(optimizer="adam", learning_rate=0.01, num_epochs=1, averages=averages)


RUNS = {
    "each_step": _plan(Settings()),
    "ten_steps": _plan(Settings(steps_between=10)),
    "each_epoch": _plan(Settings(steps_between=100)),
    "at_end": _plan(Settings(steps_between=500)),
    "gradients_adam": _plan(_adam("gradients")),
    "each_step_adam": _plan(_adam("parameters")),
}

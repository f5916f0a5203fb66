"""How often replicas must communicate: gradients in every step, or parameters less often.

Four ranks train the classifier of `ddp` on their own shards, as its run `ddp_fp64` does with DDP.
Here no gradient is sent; the ranks average their parameters at an interval: in every step, every
ten steps, once an epoch, once when training ends. With Adam, whose moments do not follow a gradient
in proportion, DDP is measured beside it.

    python -m runners run averaging
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.training.settings import ClassifierSettings

QUESTION = "Can replicas average their parameters, and less often than in every step?"
FULL = True


class Settings(ClassifierSettings):
    """A small classifier, and what its replicas average how often."""

    num_rows: Count = 10000
    num_validation_rows: Count = 1000
    num_features: Count = 10
    num_hidden: Count = 64
    num_classes: Count = 4
    batch_size: Count = 25
    num_epochs: Count = 5
    learning_rate: Factor = 0.1
    momentum: Factor = 0.9
    optimizer: Literal["sgd", "adam"] = "sgd"
    averages: Literal["parameters", "gradients"] = "parameters"
    steps_between: Count = 1
    teacher_temperature: Factor = 0.15
    dtype: Literal["float32", "float64"] = "float64"

    @cached_property
    def num_steps_per_epoch(self) -> int:
        """Batches of a rank's own samples."""
        return self.num_rows // self.world_size // self.batch_size

    def check(self) -> None:
        """Refuse a batch that a rank cannot fill."""
        if not self.num_steps_per_epoch:
            raise ValueError("num_steps_per_epoch must be a whole number above zero, not 0")


ADAM = Settings(optimizer="adam", learning_rate=0.01, num_epochs=1)
RUNS = {
    "each_step": RunPlan("train", 4, Settings(), passes=("timed",)),
    "ten_steps": RunPlan("train", 4, Settings(steps_between=10), passes=("timed",)),
    "each_epoch": RunPlan("train", 4, Settings(steps_between=100), passes=("timed",)),
    "at_end": RunPlan("train", 4, Settings(steps_between=500), passes=("timed",)),
    "gradients_adam": RunPlan(
        "train", 4, ADAM.changed({"averages": "gradients"}), passes=("timed",)
    ),
    "each_step_adam": RunPlan("train", 4, ADAM, passes=("timed",)),
}

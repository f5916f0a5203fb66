"""Gradient accumulation: several microbatches, one all-reduce, one update.

Two ranks under DDP take the same samples of an update whole, in microbatches with `no_sync` until
the last, and in microbatches whose gradients are reduced each. What travels, what is held, how long
it takes; and the same under FSDP, which gathers parameters for every microbatch anyhow.

Then one update in double precision, on parts of unequal size: samples of a classifier, and tokens
of a small language model, whose loss is a mean over tokens. Is the gradient that of the whole
batch?

    python -m runners run accumulation
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import mlp_parameters
from runners.training.settings import StackSettings

QUESTION = (
    "Does gradient accumulation give the update of the whole batch, and what memory does it save?"
)

BYTES_PER_VALUE = 4
LABEL_BYTES = 8
UNEQUAL = (8, 24, 40, 56, 4, 12, 20, 28)


class Settings(StackSettings):
    """A stack of equal layers, updated from several microbatches."""

    width: Count = 256
    num_layers: Count = 4
    num_samples: Count = 512
    num_microbatches: Count = 4
    reduces_each: bool = False
    num_updates: Count = 9
    learning_rate: Factor = 0.1

    @cached_property
    def microbatch_size(self) -> int:
        """In samples."""
        return self.num_samples // self.num_microbatches

    @cached_property
    def activation_bytes(self) -> int:
        """What one layer puts out for a microbatch."""
        return BYTES_PER_VALUE * self.width * self.microbatch_size

    @cached_property
    def sample_bytes(self) -> int:
        """Features and labels of an update."""
        return self.num_samples * (BYTES_PER_VALUE * self.width + LABEL_BYTES)

    @cached_property
    def layer_bytes(self) -> int:
        """Weights and biases of one layer."""
        return BYTES_PER_VALUE * (self.width * self.width + self.width)

    @cached_property
    def model_bytes(self) -> int:
        """Parameters of all layers."""
        return BYTES_PER_VALUE * mlp_parameters(self.widths)

    def check(self) -> None:
        """Refuse samples that do not make equal microbatches."""
        samples, parts = self.num_samples, self.num_microbatches
        if samples % parts:
            raise ValueError(f"num_samples {samples} cannot be taken in {parts} microbatches")


class GradientSettings(RunSettings):
    """One update in unequal microbatches, of samples or of tokens."""

    task: Literal["samples", "tokens"] = "samples"
    parts: tuple[Count, ...] = UNEQUAL
    norm: Literal["none", "batch"] = "none"
    width: Count = 16
    num_classes: Count = 8

    def check(self) -> None:
        """Refuse parts that the ranks cannot share equally, or that a norm cannot take."""
        if self.task == "tokens" and self.norm != "none":
            raise ValueError("norm must be none where the task is tokens")
        if len(self.parts) % self.world_size or not self.parts:
            raise ValueError(f"parts must be as many for each of {self.world_size} ranks")
        least = 2 if self.norm == "batch" else 1
        if min(self.parts) < least:
            raise ValueError(f"each of the parts must be a whole number of at least {least}")


def _train(settings: Settings) -> RunPlan:
    return RunPlan("train", 2, settings, has_timeline=False)


def _metered(settings: Settings, strategy: str = "train") -> RunPlan:
    shares = strategy == "train"
    return RunPlan(
        strategy, 2, settings, passes=("metered",), has_timeline=False, can_share_device=shares
    )


def _gradients(settings: GradientSettings) -> RunPlan:
    return RunPlan("gradients", 2, settings, passes=("timed",), has_timeline=False)


RUNS = {
    "whole": _train(Settings(num_microbatches=1)),
    "accumulated": _train(Settings()),
    "reduced_each": _train(Settings(reduces_each=True)),
    "accumulated_8": _metered(Settings(num_microbatches=8)),
    "reduced_each_8": _metered(Settings(num_microbatches=8, reduces_each=True)),
    "sharded": _metered(Settings(), "sharded"),
    "sharded_reduced_each": _metered(Settings(reduces_each=True), "sharded"),
    "samples": _gradients(GradientSettings()),
    "samples_equal": _gradients(GradientSettings(parts=(24,) * 8)),
    "tokens": _gradients(GradientSettings(task="tokens", parts=(3, 16, 8, 12, 5, 16, 2, 10))),
    "batch_norm": _gradients(GradientSettings(norm="batch", parts=(24,) * 8)),
}
ON_CUDA = {
    name: {"width": 4096, "num_samples": 8192}
    for name, plan in RUNS.items()
    if plan.strategy == "train"
}

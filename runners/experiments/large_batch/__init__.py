"""A batch that does not fit: what keeps its activations within one device's memory.

A small model and a batch so large that activations fill the memory. The batch goes through one
device whole, is split over two and over four ranks, and goes through one device in microbatches,
whose gradients are added up: each once without a limit, and once under a budget per rank.

    python -m runners run large_batch
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import mlp_parameters

QUESTION = "Which techniques train on a batch whose activations do not fit one device's memory?"
BYTES_PER_VALUE = 4
BYTES_PER_LABEL = 8
NUM_BUDGETED_EPOCHS = 3  # a budget is too small in the first or not at all


class Settings(RunSettings):
    """A residual network, and the parts in which one batch goes through it."""

    batch_size: Count = 80000
    num_validation_samples: Count = 1000
    num_features: Count = 16
    width: Count = 64
    num_residual_layers: Count = 5
    num_classes: Count = 10
    num_epochs: Count = 8  # the batch holds all samples, so an epoch is one step
    learning_rate: Factor = 1.0
    num_microbatches: Count = 1

    @property
    def widths(self) -> list[int]:
        """Of the input, of every layer's output between, and of the logits."""
        hidden = [self.width] * (self.num_residual_layers + 1)
        return [self.num_features, *hidden, self.num_classes]

    @cached_property
    def bytes_per_value(self) -> int:
        """Of float32."""
        return BYTES_PER_VALUE

    @cached_property
    def copies_per_parameter(self) -> int:
        """Plain SGD keeps each parameter and its gradient."""
        return 2

    @cached_property
    def num_samples_per_rank(self) -> int:
        """Samples of each rank."""
        return self.batch_size // self.world_size

    @cached_property
    def num_samples_at_once(self) -> int:
        """Samples of one microbatch on one rank."""
        return self.num_samples_per_rank // self.num_microbatches

    @cached_property
    def activation_bytes_per_sample(self) -> int:
        """Activations of a sample at the peak: where backward goes through the last layer.

        Kept are what the last layer and every residual one were given, and what each ReLU put out;
        beside them lie the gradients of the logits and of the last layer's input.
        """
        num_wide = (self.num_residual_layers + 1) + self.num_residual_layers + 1
        return BYTES_PER_VALUE * (num_wide * self.width + self.num_classes)

    @cached_property
    def sample_bytes(self) -> int:
        """A sample: its features and its label."""
        return BYTES_PER_VALUE * self.num_features + BYTES_PER_LABEL

    @cached_property
    def model_bytes(self) -> int:
        """All parameters."""
        return BYTES_PER_VALUE * mlp_parameters(self.widths)

    def needed_bytes(self, num_samples: int) -> int:
        """What training on so many samples at once needs at its peak, without validation."""
        per_sample = self.activation_bytes_per_sample + self.sample_bytes
        return num_samples * per_sample + self.copies_per_parameter * self.model_bytes

    def check(self) -> None:
        """Refuse a batch that cannot be cut into equal parts."""
        num_parts = self.world_size * self.num_microbatches
        if self.batch_size % num_parts:
            raise ValueError(
                f"batch_size {self.batch_size} cannot be cut into {num_parts} equal parts"
            )


def _budget_bytes(settings: Settings) -> int:
    """Halfway between what half of the batch needs and what the whole of it needs."""
    size = settings.batch_size
    return (settings.needed_bytes(size) + settings.needed_bytes(size // 2)) // 2


def _budgeted(plan: RunPlan[Settings]) -> RunPlan[Settings]:
    """The same run under a budget, which only the whole batch on one device exceeds."""
    return replace(
        plan,
        settings=plan.settings.changed({"num_epochs": NUM_BUDGETED_EPOCHS}),
        budget_bytes=_budget_bytes(plan.settings),
        expected="out_of_memory" if plan.strategy == "single" else "completed",
        passes=("budgeted",),
    )


FREE = {
    "single": RunPlan("single", 1, Settings(), has_timeline=False),
    "split": RunPlan("split", 2, Settings()),
    "split_four": RunPlan("split", 4, Settings()),
    "microbatches": RunPlan("microbatches", 1, Settings(num_microbatches=4), has_timeline=False),
}
RUNS = {
    name: plan
    for free, without in FREE.items()
    for name, plan in ((free, without), (f"{free}_budget", _budgeted(without)))
}

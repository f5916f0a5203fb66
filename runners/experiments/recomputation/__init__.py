"""Gradient checkpointing: activations that are dropped in forward and computed again in backward.

A stack of equal layers with a batch so large that activations, not parameters, fill the memory.
The same training once with every activation kept, and once with only those at the borders of
segments kept: its peak, its loss, and its time for a step.

    python -m runners run recomputation
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.training.settings import StackSettings

QUESTION = "Must training keep every intermediate result until backward needs it?"
BYTES_PER_VALUE = 4


class Settings(StackSettings):
    """A stack of equal layers, cut into segments; one keeps every activation."""

    num_layers: Count = 16
    width: Count = 256
    batch_size: Count = 2048
    num_steps: Count = 10
    learning_rate: Factor = 0.1
    num_segments: Count = 1

    @cached_property
    def activation_bytes(self) -> int:
        """What one layer puts out."""
        return BYTES_PER_VALUE * self.batch_size * self.width

    def check(self) -> None:
        """Refuse more segments than layers."""
        if self.num_segments > self.num_layers:
            raise ValueError(
                f"num_layers {self.num_layers} cannot be cut into {self.num_segments} segments"
            )


RUNS = {
    "kept": RunPlan("kept", 1, Settings(), has_timeline=False),
    "recomputed": RunPlan("recomputed", 1, Settings(num_segments=4), has_timeline=False),
}

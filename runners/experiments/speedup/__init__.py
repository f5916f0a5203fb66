"""When a second rank pays: the same global batch on one device, and under DDP over two ranks.

A stack of equal layers, and batches from small to large. What is communicated in a step depends on
the parameters alone, what is computed on the samples as well: so communication weighs less and
less.

    python -m runners run speedup
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.training.settings import StackSettings

QUESTION = "From which batch size on is a step on two ranks faster than a step on one device?"

BATCH_SIZES = (64, 256, 1024, 4096)


class Settings(StackSettings):
    """A stack of equal layers and a batch, dealt out to the ranks."""

    width: Count = 256
    num_layers: Count = 8
    global_batch_size: Count = 64
    num_steps: Count = 18
    learning_rate: Factor = 0.01

    @cached_property
    def batch_size(self) -> int:
        """Samples of one rank."""
        return self.global_batch_size // self.world_size

    def check(self) -> None:
        """Refuse a batch that the ranks cannot share equally."""
        samples, ranks = self.global_batch_size, self.world_size
        if samples % ranks:
            raise ValueError(f"global_batch_size {samples} is not divisible by {ranks} ranks")


RUNS = {
    f"{name}_{samples}": RunPlan(
        strategy, world_size, Settings(global_batch_size=samples), passes=("timed",)
    )
    for samples in BATCH_SIZES
    for name, strategy, world_size in (("one", "single", 1), ("two", "ddp", 2))
}

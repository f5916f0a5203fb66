"""DistributedDataParallel: replicas that stay equal because their gradients are averaged.

Four ranks train one small classifier on a shard of the samples each. Beside it: the same training
on a single device (the oracle), replicas that never synchronize, and features scaled shard by
shard.

    python -m runners run ddp
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count
from runners.traces.schema import Setting
from runners.training.settings import GlobalBatchSettings

QUESTION = "Does training on four replicas with averaged gradients equal training on one device?"


class Settings(GlobalBatchSettings):
    """A small classifier, and how its samples are scaled, ordered and dealt out."""

    dtype: Literal["float32", "float64"] = "float32"
    scaling: Literal["global", "per_shard"] = "global"
    order: Literal["shuffled", "sorted"] = "shuffled"
    # Of a single device, which takes the samples in the order that so many ranks would.
    num_shards: Count = 4

    def forced(self) -> dict[str, Setting]:
        """Each of several ranks has a shard of its own."""
        return {"num_shards": self.world_size} if self.world_size > 1 else {}

    @cached_property
    def num_samples_per_shard(self) -> int:
        """Of each rank, or of the single device in one round."""
        return self.num_samples // self.num_shards

    def check(self) -> None:
        """Refuse samples that cannot be dealt out equally, or that fill no batch."""
        if self.num_samples % self.num_shards:
            raise ValueError(
                f"num_samples {self.num_samples} do not make {self.num_shards} equal shards"
            )
        own = self.num_samples // self.world_size
        if own < self.batch_size:
            raise ValueError(f"batch_size {self.batch_size} is more than a rank's {own} samples")


RUNS = {
    "ddp": RunPlan("ddp", 4, Settings(), keeps_steps=True),
    "single": RunPlan("single", 1, Settings(batch_size=100)),
    "ddp_fp64": RunPlan("ddp", 4, Settings(dtype="float64"), passes=("timed",)),
    "single_fp64": RunPlan(
        "single", 1, Settings(dtype="float64", batch_size=100), passes=("timed",)
    ),
    "no_sync": RunPlan("no_sync", 4, Settings()),
    # What scaling does shows early.
    "per_shard_shuffled": RunPlan(
        "ddp", 4, Settings(num_epochs=3, scaling="per_shard"), passes=("timed",)
    ),
    "per_shard_sorted": RunPlan(
        "ddp", 4, Settings(num_epochs=3, scaling="per_shard", order="sorted"), passes=("timed",)
    ),
    "global_sorted": RunPlan("ddp", 4, Settings(num_epochs=3, order="sorted"), passes=("timed",)),
    "ddp_two_ranks": RunPlan("ddp", 2, Settings(batch_size=50), passes=("timed",)),
}

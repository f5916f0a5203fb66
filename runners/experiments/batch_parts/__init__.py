"""Shards of one batch, each with its own loss: what weights give the update of the whole batch.

Every rank takes its own samples of a batch and the mean loss over them; only gradients travel. The
parts are equal or not, and their gradients are weighted by samples, by ranks, or just added up.
Beside them: one device on the whole batch, and one with a larger learning rate.

    python -m runners run batch_parts
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from runners.experiments.batch_split import BatchSettings
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count

QUESTION = "Each rank computes the loss on its own samples: how must its gradient be weighted?"


class Settings(BatchSettings):
    """Every batch is dealt out to the ranks; the last takes its own number of samples."""

    num_last_samples: Count = 50  # of a batch, on the last rank; the others share the rest
    weights: Literal["by_samples", "by_rank", "none"] = "by_samples"
    order: Literal["shuffled", "by_label"] = "shuffled"
    optimizer: Literal["sgd", "adam"] = "sgd"

    @cached_property
    def samples_by_rank(self) -> list[int]:
        """Of one batch."""
        others = self.world_size - 1
        shares = [(self.batch_size - self.num_last_samples) // others] * others if others else []
        return [*shares, self.num_last_samples]

    def check(self) -> None:
        """Refuse a batch that cannot be cut so, or leaves a rank without samples."""
        size, last = self.batch_size, self.num_last_samples
        if sum(self.samples_by_rank) != size or 0 in self.samples_by_rank:
            raise ValueError(f"a batch of {size} samples cannot leave {last} to the last rank")


def _timed(world_size: int, settings: Settings) -> RunPlan:
    return RunPlan("parts", world_size, settings, passes=("timed",))


RUNS = {
    "own_loss": RunPlan("parts", 2, Settings()),
    "whole": _timed(1, Settings(num_last_samples=100)),
    "summed": _timed(2, Settings(weights="none")),
    "larger_rate": _timed(1, Settings(num_last_samples=100, learning_rate=0.1)),
    "adam": _timed(2, Settings(optimizer="adam", learning_rate=0.005)),
    "adam_summed": _timed(2, Settings(optimizer="adam", learning_rate=0.005, weights="none")),
    "unequal": _timed(2, Settings(num_last_samples=20, order="by_label")),
    "unequal_by_rank": _timed(
        2, Settings(num_last_samples=20, order="by_label", weights="by_rank")
    ),
    "unequal_by_rank_shuffled": _timed(2, Settings(num_last_samples=20, weights="by_rank")),
}

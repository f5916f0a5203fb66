"""What becomes of training when more ranks make the global batch larger, and how to avoid it.

Four ranks train the classifier of `ddp`, whose run `ddp_fp64` keeps the global batch of one device.
In `grown` each rank keeps the batch of the one device, so that fewer updates are left;
`grown_scaled` lets the learning rate follow. `accumulated` takes the large batch in small ones,
with `no_sync` until the last; `reduced_each` does so without it.

    python -m runners run global_batch
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count
from runners.training.settings import GlobalBatchSettings

QUESTION = "What changes when each rank keeps the batch size that one device had?"


class Settings(GlobalBatchSettings):
    """A small classifier, updated from a batch that is taken whole or in parts."""

    batch_size: Count = 100
    num_parts: Count = 1
    reduces_each_part: bool = False

    @cached_property
    def num_updates(self) -> int:
        """In all epochs."""
        return self.num_samples // self.global_batch_size * self.num_epochs

    def check(self) -> None:
        """Refuse a batch that does not make equal parts, and samples that fill no batch."""
        size, parts = self.batch_size, self.num_parts
        if size % parts:
            raise ValueError(f"batch_size {size} cannot be taken in {parts} parts")
        if not self.num_updates:
            raise ValueError("num_updates must be a whole number above zero, not 0")


def _whole(settings: Settings) -> RunPlan:
    return RunPlan("train", 4, settings, passes=("timed",), has_timeline=False)


def _in_parts(settings: Settings) -> RunPlan:
    return RunPlan("train", 4, settings, has_timeline=False)


RUNS = {
    "grown": _whole(Settings()),
    "grown_scaled": _whole(Settings(learning_rate=0.4)),
    "accumulated": _in_parts(Settings(num_parts=4)),
    "reduced_each": _in_parts(Settings(num_parts=4, reduces_each_part=True)),
}

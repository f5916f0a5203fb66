"""One batch split over two ranks: scatter the samples, gather the logits, combine the gradients.

Rank 0 holds the batch. It scatters a half to each rank, gathers the logits back, takes the loss on
the whole batch and scatters the gradient of the logits; both ranks go backward and their parameter
gradients are summed into one update. Beside it: the same batches on a single device, the oracle.

    python -m runners run batch_split
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, FactorOrZero
from runners.training.settings import ClassifierSettings

QUESTION = (
    "Does splitting every batch over two ranks change what the model learns, and is it faster?"
)


class BatchSettings(ClassifierSettings):
    """A small classifier, trained on batches that may be shared by ranks."""

    num_samples: Count = 10000
    num_validation_samples: Count = 1000
    num_features: Count = 20
    num_hidden: Count = 128
    num_classes: Count = 10
    batch_size: Count = 100
    num_epochs: Count = 5
    learning_rate: Factor = 0.05
    momentum: FactorOrZero = 0.9
    teacher_temperature: Factor = 0.05

    @cached_property
    def num_batches(self) -> int:
        """Of all ranks together, in one epoch."""
        return self.num_samples // self.batch_size


class Settings(BatchSettings):
    """Every batch is split equally over the ranks."""

    @cached_property
    def num_samples_per_rank(self) -> int:
        """Of one batch."""
        return self.batch_size // self.world_size

    def check(self) -> None:
        """Refuse samples that leave a batch unfilled, and a batch without equal parts."""
        size, ranks = self.batch_size, self.world_size
        if self.num_samples % size:
            raise ValueError(f"num_samples {self.num_samples} cannot be cut into batches of {size}")
        if size % ranks:
            raise ValueError(f"batch_size {size} cannot be split over {ranks} ranks")


RUNS = {
    "split": RunPlan("split", 2, Settings(), can_share_device=False),
    "single": RunPlan("single", 1, Settings()),
}

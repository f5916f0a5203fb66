"""One training step under FSDP, followed unit by unit: gather, compute, reshard, reduce-scatter.

`fsdp` trains a small MLP over two ranks, each of its layers an FSDP unit; `single` trains the same
model on one device with the global batch, as an oracle.

    python -m runners run fsdp_step --full
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, FactorOrZero
from runners.training.settings import TeacherSettings

QUESTION = "What does a rank hold and communicate at each point of a training step under FSDP?"
BYTES_PER_VALUE = 4
NUM_PARTS = 2  # of the samples: one for each rank of `fsdp`


class Settings(TeacherSettings):
    """An MLP of a few linear layers, trained by SGD with momentum."""

    num_samples: Count = 2048
    num_validation_samples: Count = 512
    num_features: Count = 24
    num_classes: Count = 4
    teacher_temperature: Factor = 0.15
    width: Count = 128
    batch_size: Count = 16
    num_epochs: Count = 5
    learning_rate: Factor = 0.05
    momentum: FactorOrZero = 0.9

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the features, of two hidden layers, and of the classes."""
        return (self.num_features, self.width, self.width, self.num_classes)

    @cached_property
    def model_bytes(self) -> int:
        """All weights and biases in fp32."""
        return BYTES_PER_VALUE * sum((a + 1) * b for a, b in pairwise(self.widths))

    @cached_property
    def unit_bytes(self) -> int:
        """The second layer, the largest FSDP unit."""
        return BYTES_PER_VALUE * (self.width + 1) * self.width

    def check(self) -> None:
        """Refuse layers that the ranks cannot share equally."""
        if self.strategy == "fsdp" and any(width % self.world_size for width in self.widths[1:]):
            raise ValueError(f"widths {self.widths} cannot be sharded over {self.world_size} ranks")


RUNS = {
    "fsdp": RunPlan("fsdp", NUM_PARTS, Settings(), can_share_device=False),
    "single": RunPlan("single", 1, Settings(batch_size=32), passes=("timed",)),
}

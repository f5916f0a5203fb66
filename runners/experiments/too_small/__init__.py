"""Models too small to distribute: one device against two ranks, over the size of the model.

The same two processes take turns: rank 0 trains alone on the whole batch while rank 1 waits, then
both train under DDP on their shares. Whatever disturbs the machine disturbs both alike. The size at
which the two times would be equal is interpolated, and resampled from the raw times for its spread.

    python -m runners run too_small
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import mlp_parameters

QUESTION = "From which size on does a model gain from a second rank, with as many samples in all?"


class Settings(RunSettings):
    """Models of several widths, each trained on the same global batch."""

    widths: tuple[Count, ...] = (16, 32, 64, 128, 256)
    num_layers: Count = 4
    global_batch_size: Count = 512
    num_turns: Count = 15
    learning_rate: Factor = 0.1

    @cached_property
    def batch_size(self) -> int:
        """Samples of a rank under DDP."""
        return self.global_batch_size // self.world_size

    @cached_property
    def num_parameters(self) -> tuple[int, ...]:
        """Of each model."""
        return tuple(mlp_parameters(self.layers_of(width)) for width in self.widths)

    def layers_of(self, width: int) -> tuple[int, ...]:
        """Input and output widths of all layers of one model."""
        return (width,) * (self.num_layers + 1)

    def check(self) -> None:
        """Refuse widths that are no sweep, and a batch that ranks cannot share equally."""
        if len(self.widths) < 2:
            raise ValueError(f"widths must be at least two, not {list(self.widths)!r}")
        if any(low >= high for low, high in pairwise(self.widths)):
            raise ValueError(f"widths must ascend, not {list(self.widths)!r}")
        samples = self.global_batch_size
        if samples % self.world_size:
            raise ValueError(
                f"global_batch_size {samples} is not divisible by {self.world_size} ranks"
            )


FAR = Settings(widths=(16, 32, 64, 128, 256, 512, 1024), global_batch_size=1024, num_turns=30)
RUNS = {
    "sweep": RunPlan("take_turns", 2, Settings(), has_timeline=False),
    "sweep_few_samples": RunPlan(
        "take_turns", 2, Settings(global_batch_size=64), has_timeline=False
    ),
    "sweep_far": RunPlan("take_turns", 2, FAR, has_timeline=False, full=True),
}
ON_CUDA = {"*": {"widths": [128, 256, 512, 1024, 2048, 4096], "global_batch_size": 4096}}

"""What replicas need so that DDP's mean is the gradient of the global batch, one step at a time.

Four ranks wrap a small classifier in DDP and take one step on shards of one batch. Every rank also
computes, on a copy, the gradient of the whole batch: the oracle. Equal parts, unequal parts with
and without weights, layers that look across samples and one that does not. Beside it what else a
script must get right for each rank: its random numbers, and the samples that a sampler gives it.

    python -m runners run replicas
"""

from __future__ import annotations

from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor, RunSettings
from runners.traces.schema import Setting
from runners.training.settings import TeacherSettings

QUESTION = "When is the mean of the ranks' gradients the gradient of the whole batch?"


def parts(num_samples: int, num_ranks: int, skew: int) -> list[int]:
    """Samples of each rank: every rank has `skew` more than the one before, together `num_samples`.

    Raises:
        ValueError: the first rank would have none.
    """
    base = (num_samples - skew * num_ranks * (num_ranks - 1) // 2) // num_ranks
    if base < 1:
        raise ValueError(f"a skew of {skew} leaves rank 0 without samples; take a smaller one")
    sizes = [base + skew * rank for rank in range(num_ranks)]
    sizes[-1] += num_samples - sum(sizes)
    return sizes


class StepSettings(TeacherSettings):
    """One step of a small classifier on a batch that the ranks share."""

    num_samples: Count = 100
    num_validation_samples: Count = 1
    num_features: Count = 10
    num_hidden: Count = 64
    num_classes: Count = 4
    batch_size: Count = 100
    skew: CountOrZero = 0
    weighted: bool = False
    norm: Literal["none", "batch", "layer"] = "none"
    learning_rate: Factor = 0.1
    teacher_temperature: Factor = 0.15
    dtype: Literal["float32", "float64"] = "float64"

    def forced(self) -> dict[str, Setting]:
        """The batch is all samples."""
        return {"num_samples": self.batch_size}

    @property
    def sizes(self) -> list[int]:
        """Samples of each rank."""
        return parts(self.batch_size, self.world_size, self.skew)

    def check(self) -> None:
        """Refuse a skew that leaves a rank without samples."""
        parts(self.batch_size, self.world_size, self.skew)


class SamplerSettings(RunSettings):
    """The samples that a sampler deals out."""

    num_samples: Count = 10
    num_epochs: Count = 3
    drops_last: bool = False


class DropoutSettings(RunSettings):
    """One draw of dropout on each rank."""

    num_features: Count = 64
    dropout: float = 0.5
    seeds_by_rank: bool = False


def _plan(strategy: str, settings: RunSettings) -> RunPlan:
    return RunPlan(strategy, 4, settings, passes=("timed",))


RUNS = {
    "equal": _plan("one_step", StepSettings()),
    "unequal": _plan("one_step", StepSettings(skew=10)),
    "unequal_weighted": _plan("one_step", StepSettings(skew=10, weighted=True)),
    "batch_norm": _plan("one_step", StepSettings(norm="batch")),
    "layer_norm": _plan("one_step", StepSettings(norm="layer")),
    "sampled_padded": _plan("sampled", SamplerSettings()),
    "sampled_dropped": _plan("sampled", SamplerSettings(drops_last=True)),
    "drawn_alike": _plan("drawn", DropoutSettings()),
    "drawn_apart": _plan("drawn", DropoutSettings(seeds_by_rank=True)),
}

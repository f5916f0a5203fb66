"""When a second rank pays: the same global batch on one device, and under DDP over two ranks.

A stack of equal layers, and batches from small to large. What is communicated in a step depends on
the parameters alone, what is computed on the samples as well: so communication weighs less and
less.

    python -m runners run speedup
"""

from __future__ import annotations

from torch import nn

from runners.closed_forms.training_settings import SharedBatchSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, Factor
from runners.core.ranks.rank import Rank
from runners.training.steps import replica_of, sgd_steps, stack_for, step_on_samples


def ddp(rank: Rank[Settings]) -> None:
    """A share of the batch on each rank, gradients averaged."""
    _train(rank, replica_of(rank, stack_for(rank)))


def single(rank: Rank[Settings]) -> None:
    """The whole batch on one device."""
    _train(rank, stack_for(rank))


def _train(rank: Rank[Settings], model: nn.Module) -> None:
    sgd_steps(rank, model, step_on_samples(rank, model))
    rank.count_samples(rank.settings.num_steps * rank.settings.batch_size)


QUESTION = "From which batch size on is a step on two ranks faster than a step on one device?"
BATCH_SIZES = (64, 256, 1024, 4096)


class Settings(SharedBatchSettings):
    """A stack of equal layers and a batch, dealt out to the ranks."""

    width: Count = 256
    num_layers: Count = 8
    global_batch_size: Count = 64
    num_steps: Count = 18
    learning_rate: Factor = 0.01


RUNS = {
    f"{name}_{samples}": Declaration(
        strategy, world_size, Settings(global_batch_size=samples), passes=("timed",)
    )
    for samples in BATCH_SIZES
    for name, strategy, world_size in (("one", "single", 1), ("two", "ddp", 2))
}
TRIED_WITH = {run: {"num_steps": 6} for run in ("one_4096", "two_4096")}

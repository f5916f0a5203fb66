"""What replicas need so that DDP's mean is the gradient of the global batch, one step at a time.

Every rank also computes, on a copy, the gradient of the whole batch: the oracle. Beside it what
else a script must get right for each rank: its random numbers, and the samples of a sampler.

    python -m runners run replicas
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout
from torch.utils.data import DistributedSampler, TensorDataset

from runners.closed_forms.training_settings import FourClassSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, CountOrZero, RunSettings
from runners.core.ranks.rank import Rank
from runners.core.ranks.recorder import parameter_digest
from runners.training.networks import flat_gradient, mlp
from runners.training.steps import num_distinct, of_all_ranks, replica_of, scaled_lesson


def one_step(rank: Rank[StepSettings]) -> None:
    """One backward pass under DDP, compared with one backward pass on the whole batch."""
    settings, sizes = rank.settings, rank.settings.sizes
    batch, dtype = scaled_lesson(rank).training, getattr(torch, settings.dtype)
    torch.manual_seed(rank.seed)
    model = mlp(settings.widths, dtype=dtype, device=rank.device, norm=settings.norm)
    whole = deepcopy(model)
    rank.watch(model)
    replica = replica_of(rank, model)
    own, labels = (of_all.split(sizes)[rank.rank] for of_all in (batch.features, batch.labels))
    with rank.predict("step", "forward and backward under DDP", own) as out:
        loss = cross_entropy(replica(own), labels)
        weight = sizes[rank.rank] * rank.world_size / settings.num_samples
        (loss * weight if settings.weighted else loss).backward()
        averaged = flat_gradient(model)
        out(averaged, num_samples=[*sizes])
    with rank.predict("compare", "the gradient of the whole batch", batch.features) as out:
        cross_entropy(whole(batch.features), batch.labels).backward()
        oracle = flat_gradient(whole)
        apart = (torch.linalg.norm(averaged - oracle) / torch.linalg.norm(oracle)).item()
        out(oracle, relative_differences=[*of_all_ranks(rank, apart)])
    if settings.norm == "batch":
        _watch_buffers(rank, replica, own)


def _watch_buffers(rank: Rank, replica: nn.Module, samples: Tensor) -> None:
    """Running statistics after the step, and when the next forward pass begins."""
    norm = next(m for m in replica.modules() if isinstance(m, nn.BatchNorm1d))
    found: list[list[str]] = []

    def note(*_: object) -> None:
        found.append(of_all_ranks(rank, parameter_digest(norm.buffers())))

    for module in (replica, norm):  # DDP broadcasts buffers in between
        module.register_forward_pre_hook(note)
    with rank.predict("buffers", "begin the next forward pass", samples) as out:
        given = replica(samples)
        after, met = found
        out(given, digests_after=[*after], num_distinct_after=len({*after}), digests_met=[*met])


def sampled(rank: Rank[SamplerSettings]) -> None:
    """The samples that `DistributedSampler` gives each rank, and their order in each epoch."""
    settings, samples = rank.settings, torch.arange(rank.settings.num_samples)
    sampler: DistributedSampler[object] = DistributedSampler(
        TensorDataset(samples), seed=rank.seed, drop_last=settings.drops_last
    )
    with rank.predict("samples", "ask the sampler for an epoch's samples", samples) as out:
        own = list(sampler)
        given = [sample for of_rank in of_all_ranks(rank, own) for sample in of_rank]
        out(torch.tensor(own), num_samples_given=len(given), num_distinct=len(set(given)))
    with rank.predict("epochs", "ask the sampler again in each epoch", samples) as out:
        orders = [tuple(sampler) for _ in range(settings.num_epochs)]
        out(samples, num_orders_without_epoch=len(set(orders)))
        for epoch in range(settings.num_epochs):
            sampler.set_epoch(epoch)
            orders[epoch] = tuple(sampler)
        out(torch.tensor(orders[-1]), num_orders_with_epoch=len(set(orders)))


def drawn(rank: Rank[DropoutSettings]) -> None:
    """One draw of dropout on every rank: the same mask, or one of its own?"""
    torch.manual_seed(rank.seed + (rank.rank if rank.settings.seeds_by_rank else 0))
    samples = torch.ones(1, rank.settings.num_features)
    with rank.predict("dropout", "drop features at random", samples) as out:
        kept = dropout(samples, rank.settings.dropout)
        out(kept, num_distinct=num_distinct(rank, [kept]))


QUESTION = "When is the mean of the ranks' gradients the gradient of the whole batch?"


class StepSettings(FourClassSettings):
    """One step of a small classifier on a batch that the ranks share."""

    num_samples: Count = 100
    num_validation_samples: Count = 1
    skew: CountOrZero = 0
    weighted: bool = False
    norm: Literal["none", "batch", "layer"] = "none"

    @property
    def sizes(self) -> list[int]:
        """Samples of each rank: `skew` more than of the one before, all of the batch together."""
        ranks = self.world_size
        base = (self.num_samples - self.skew * ranks * (ranks - 1) // 2) // ranks
        sizes = [base + self.skew * rank for rank in range(ranks - 1)]
        return [*sizes, self.num_samples - sum(sizes)]


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


timed = partial(Declaration, world_size=4, passes=("timed",))
RUNS = {
    "equal": timed("one_step", settings=StepSettings()),
    "unequal": timed("one_step", settings=StepSettings(skew=10)),
    "unequal_weighted": timed("one_step", settings=StepSettings(skew=10, weighted=True)),
    "batch_norm": timed("one_step", settings=StepSettings(norm="batch")),
    "layer_norm": timed("one_step", settings=StepSettings(norm="layer")),
    "sampled_padded": timed("sampled", settings=SamplerSettings()),
    "sampled_dropped": timed("sampled", settings=SamplerSettings(drops_last=True)),
    "drawn_alike": timed("drawn", settings=DropoutSettings()),
    "drawn_apart": timed("drawn", settings=DropoutSettings(seeds_by_rank=True)),
}

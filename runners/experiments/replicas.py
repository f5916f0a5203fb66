"""Replicas under DDP against one device: whole trainings, and what a single step needs.

In `ddp`, four ranks train one small classifier on a shard of the samples each. Beside it: the same
training on a single device (the oracle), replicas that never synchronize, and features scaled
shard by shard. In `replicas`, every rank also computes, on a copy, the gradient of the whole batch;
beside it what else a script must get right for each rank: its random numbers, and its samples.

    python -m runners run ddp
    python -m runners run replicas
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset

from proofbook.runners.api import Count, CountOrZero, Declaration, RunSettings, Setting, closed_form
from proofbook.runners.closed_forms.training_settings import FourClassSettings, GlobalBatchSettings
from proofbook.runners.training import steps
from proofbook.runners.training.follow import compare_replicas, follow_replica, show_step
from proofbook.runners.training.networks import flat, flat_gradient, mlp
from proofbook.runners.training.rank import Rank, parameter_digest
from proofbook.runners.training.teacher import Lesson, scaled

LINE = "epoch {epoch}: loss {loss:.4f} on rank 0"


def ddp(rank: Rank[TrainingSettings], *, averages: bool = True) -> None:
    """Build and train replicas of an MLP, gradients averaged by DDP or never; compare them."""
    lesson = _lesson(rank)
    model = steps.mlp_of_rank(rank)
    wrap = "broadcast the parameters of rank zero to every replica"
    with rank.phase("wrap"), rank.stage("wrap", wrap, flat(model), everywhere=True) as out:
        replica = DistributedDataParallel(model)
        if averages:
            out(flat(model))
    with nullcontext() if averages else replica.no_sync():
        steps.train(rank, replica, lesson, LINE)
    if rank.is_metered:
        return
    compare_replicas(rank, model, lesson.validation)
    if averages:
        batch = steps.batch_of(lesson.training, 0, rank.settings.batch_size)
        show_step(rank, replica, steps.optimizer_for(rank, replica), batch, lesson.validation)
        follow_replica(rank, model, steps.optimizer_for(rank, replica), batch)


def single(rank: Rank[TrainingSettings]) -> None:
    """The oracle: one device, the global batch, the same samples in the same order."""
    lesson = _lesson(rank)
    steps.train(rank, steps.mlp_of_rank(rank), lesson, LINE)


def _lesson(rank: Rank[TrainingSettings]) -> Lesson:
    """This rank's samples, scaled, and the validation samples scaled as rank 0 would."""
    lesson = steps.lesson_for(rank)
    whole = lesson.training
    if rank.settings.order == "sorted":  # as a careless export leaves them
        whole = whole.take(whole.features[:, 0].argsort(stable=True))
    shard = steps.shard_of(rank, whole)
    take = "take this rank's shard of the samples"
    with rank.stage("load", take, whole.features, everywhere=True) as out:
        out(shard.features)
    is_own = rank.settings.scaling == "per_shard"
    like = (shard if is_own else whole).features
    whose = "its shard's" if is_own else "all samples'"
    scale = f"scale each feature by {whose} minimum and maximum"
    with rank.stage("scale", scale, shard.features, everywhere=True) as out:
        training = scaled(shard, like)
        out(training.features)
    training = training.to(rank.device)
    if rank.world_size == 1:  # each global batch holds one batch of every shard
        order = torch.arange(len(training.labels)).view(rank.settings.num_shards, -1)
        training = training.take(order.T.reshape(-1))
    validation = scaled(lesson.validation, like).to(rank.device)
    rank.inputs(training.features, training.labels, validation.features, validation.labels)
    return Lesson(training, validation)


class TrainingSettings(GlobalBatchSettings):
    """A small classifier, and how its samples are scaled, ordered and dealt out."""

    dtype: Literal["float32", "float64"] = "float32"
    scaling: Literal["global", "per_shard"] = "global"
    order: Literal["shuffled", "sorted"] = "shuffled"
    # Of a single device, which takes the samples in the order that so many ranks would.
    num_shards: Count = 4
    equal_parts = (("num_samples", "num_shards"),)

    def forced(self) -> dict[str, Setting]:
        """Each of several ranks has a shard of its own."""
        return {"num_shards": self.world_size} if self.world_size > 1 else {}

    @closed_form
    def num_samples_per_shard(self) -> int:
        """Of each rank, or of the single device in one round."""
        return self.num_samples // self.num_shards


profiled = partial(Declaration, has_timeline=True)
timed = partial(profiled, passes=("timed",))
early = partial(TrainingSettings, num_epochs=3)  # what scaling does shows early


class _Ddp:
    QUESTION = (
        "Does training on four replicas with averaged gradients equal training on one device?"
    )
    STRATEGIES = {"no_sync": partial(ddp, averages=False)}
    RUNS = {
        "ddp": profiled("ddp", 4, TrainingSettings(), keeps_steps=True),
        "single": profiled("single", 1, TrainingSettings(batch_size=100)),
        "ddp_fp64": timed("ddp", 4, TrainingSettings(dtype="float64")),
        "single_fp64": timed("single", 1, TrainingSettings(dtype="float64", batch_size=100)),
        "no_sync": profiled("no_sync", 4, TrainingSettings()),
        "per_shard_shuffled": timed("ddp", 4, early(scaling="per_shard")),
        "per_shard_sorted": timed("ddp", 4, early(scaling="per_shard", order="sorted")),
        "global_sorted": timed("ddp", 4, early(order="sorted")),
        "ddp_two_ranks": timed("ddp", 2, TrainingSettings(batch_size=50)),
    }
    TRIED_WITH = {"*": {"num_samples": 1000, "num_epochs": 4}}


def one_step(rank: Rank[StepSettings]) -> None:
    """Record the gradient of a backward pass under DDP, and its distance from the whole batch's."""
    settings, sizes = rank.settings, rank.settings.sizes
    batch, dtype = steps.scaled_lesson(rank).training, getattr(torch, settings.dtype)
    torch.manual_seed(rank.seed)
    model = mlp(settings.widths, dtype=dtype, device=rank.device, norm=settings.norm)
    whole = deepcopy(model)
    rank.watch(model)
    replica = steps.replica_of(rank, model)
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
        out(oracle, relative_differences=[*steps.of_all_ranks(rank, apart)])
    if settings.norm == "batch":
        _watch_buffers(rank, replica, own)


def _watch_buffers(rank: Rank, replica: nn.Module, samples: Tensor) -> None:
    """Running statistics after the step, and when the next forward pass begins."""
    norm = next(m for m in replica.modules() if isinstance(m, nn.BatchNorm1d))
    digests: list[list[str]] = []

    def note(*_: object) -> None:
        digests.append(steps.of_all_ranks(rank, parameter_digest(norm.buffers())))

    for module in (replica, norm):  # DDP broadcasts buffers in between
        module.register_forward_pre_hook(note)
    with rank.predict("buffers", "begin the next forward pass", samples) as out:
        given = replica(samples)
        after, met = digests
        out(given, digests_after=[*after], num_distinct_after=len({*after}), digests_met=[*met])


def sampled(rank: Rank[SamplerSettings]) -> None:
    """Record what `DistributedSampler` gives ranks, and its orders with and without `set_epoch`."""
    settings, samples = rank.settings, torch.arange(rank.settings.num_samples)
    sampler: DistributedSampler[object] = DistributedSampler(
        TensorDataset(samples), seed=rank.seed, drop_last=settings.drops_last
    )
    with rank.predict("samples", "ask the sampler for an epoch's samples", samples) as out:
        own = list(sampler)
        given = [sample for of_rank in steps.of_all_ranks(rank, own) for sample in of_rank]
        out(torch.tensor(own), num_samples_given=len(given), num_distinct=len(set(given)))
    with rank.predict("epochs", "ask the sampler again in each epoch", samples) as out:
        orders = [tuple(sampler) for _ in range(settings.num_epochs)]
        out(samples, num_orders_without_epoch=len(set(orders)))
        for epoch in range(settings.num_epochs):
            sampler.set_epoch(epoch)
            orders[epoch] = tuple(sampler)
        out(torch.tensor(orders[-1]), num_orders_with_epoch=len(set(orders)))


def drawn(rank: Rank[DropoutSettings]) -> None:
    """Record how many distinct dropout masks the ranks draw, seeded alike or each by its rank."""
    torch.manual_seed(rank.seed + (rank.rank if rank.settings.seeds_by_rank else 0))
    samples = torch.ones(1, rank.settings.num_features)
    with rank.predict("dropout", "drop features at random", samples) as out:
        kept = dropout(samples, rank.settings.dropout)
        out(kept, num_distinct=steps.num_distinct(rank, [kept]))


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


of_four = partial(Declaration, world_size=4, passes=("timed",))


class _Replicas:
    QUESTION = "When is the mean of the ranks' gradients the gradient of the whole batch?"
    RUNS = {
        "equal": of_four("one_step", settings=StepSettings()),
        "unequal": of_four("one_step", settings=StepSettings(skew=10)),
        "unequal_weighted": of_four("one_step", settings=StepSettings(skew=10, weighted=True)),
        "batch_norm": of_four("one_step", settings=StepSettings(norm="batch")),
        "layer_norm": of_four("one_step", settings=StepSettings(norm="layer")),
        "sampled_padded": of_four("sampled", settings=SamplerSettings()),
        "sampled_dropped": of_four("sampled", settings=SamplerSettings(drops_last=True)),
        "drawn_alike": of_four("drawn", settings=DropoutSettings()),
        "drawn_apart": of_four("drawn", settings=DropoutSettings(seeds_by_rank=True)),
    }


EXPERIMENTS = {"ddp": _Ddp, "replicas": _Replicas}

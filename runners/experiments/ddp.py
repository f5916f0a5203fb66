"""DistributedDataParallel: replicas that stay equal because their gradients are averaged.

Four ranks train one small classifier on a shard of the samples each. Beside it: the same training
on a single device (the oracle), replicas that never synchronize, and features scaled shard by
shard.

    python -m runners run ddp
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Literal

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.closed_forms.training_settings import GlobalBatchSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, closed_form
from runners.core.ranks.rank import Rank
from runners.core.trace.schema import Setting
from runners.training import steps
from runners.training.follow import compare_replicas, follow_replica, show_step
from runners.training.networks import flat
from runners.training.teacher import Samples, scaled


def ddp(rank: Rank[Settings], *, averages: bool = True) -> None:
    """One replica a rank; DDP averages gradients in every backward pass, or never."""
    training, validation = _samples(rank)
    model = steps.mlp_of_rank(rank)
    wrap = "broadcast the parameters of rank zero to every replica"
    with rank.phase("wrap"), rank.stage("wrap", wrap, flat(model), everywhere=True) as out:
        replica = DistributedDataParallel(model)
        if averages:
            out(flat(model))
    with nullcontext() if averages else replica.no_sync():
        _train(rank, replica, training, validation)
    if rank.is_metered:
        return
    compare_replicas(rank, model, validation)
    if averages:
        batch = training.take(slice(0, rank.settings.batch_size))
        show_step(rank, replica, steps.optimizer_for(rank, replica), batch, validation)
        follow_replica(rank, model, steps.optimizer_for(rank, replica), batch)


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device, the global batch, the same samples in the same order."""
    training, validation = _samples(rank)
    _train(rank, steps.mlp_of_rank(rank), training, validation)


def _train(rank: Rank[Settings], model: nn.Module, training: Samples, validation: Samples) -> None:
    optimizer = steps.optimizer_for(rank, model)
    line = "epoch {epoch}: loss {loss:.4f} on rank 0"
    for epoch in steps.epochs(rank, model, optimizer, validation, line):
        for batch in epoch.batches(training, rank.settings.batch_size):
            logits = model(batch.features)
            loss = cross_entropy(logits, batch.labels)
            loss.backward()  # DDP averages the gradients here
            optimizer.step()
            optimizer.zero_grad()
            epoch.add(loss, logits, batch.labels)
            del logits, loss  # before the next forward pass


def _samples(rank: Rank[Settings]) -> tuple[Samples, Samples]:
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
    return training, validation


def no_sync(rank: Rank[Settings]) -> None:
    """Replicas start equal and never communicate a gradient."""
    ddp(rank, averages=False)


QUESTION = "Does training on four replicas with averaged gradients equal training on one device?"


class Settings(GlobalBatchSettings):
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
early = partial(Settings, num_epochs=3)  # what scaling does shows early
RUNS = {
    "ddp": profiled("ddp", 4, Settings(), keeps_steps=True),
    "single": profiled("single", 1, Settings(batch_size=100)),
    "ddp_fp64": timed("ddp", 4, Settings(dtype="float64")),
    "single_fp64": timed("single", 1, Settings(dtype="float64", batch_size=100)),
    "no_sync": profiled("no_sync", 4, Settings()),
    "per_shard_shuffled": timed("ddp", 4, early(scaling="per_shard")),
    "per_shard_sorted": timed("ddp", 4, early(scaling="per_shard", order="sorted")),
    "global_sorted": timed("ddp", 4, early(order="sorted")),
    "ddp_two_ranks": timed("ddp", 2, Settings(batch_size=50)),
}
TRIED_WITH = {"*": {"num_samples": 1000, "num_epochs": 4}}

"""One step under DDP, what a sampler deals out, and what chance draws on each rank."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from runners.experiments.replicas import DropoutSettings, SamplerSettings, StepSettings
from runners.experiments.replicas.shown import compare, watch_buffers
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.schema import Setting
from runners.training.networks import description, flat_gradient, mlp
from runners.training.steps import lesson_for, of_all_ranks
from runners.training.teacher import Samples, Scaling


def one_step(rank: Rank[StepSettings]) -> None:
    """One backward pass under DDP, compared with one backward pass on the whole batch."""
    settings = rank.settings
    batch, model = _batch(rank), _network(rank)
    whole = copy.deepcopy(model)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    rank.watch(model, torch.optim.SGD(model.parameters(), lr=settings.learning_rate))
    sizes = settings.sizes
    start = sum(sizes[: rank.rank])
    own = batch.take(slice(start, start + sizes[rank.rank]))
    facts: dict[str, Setting] = {"num_samples": [*sizes]}
    with rank.predict("step", "forward and backward under DDP", own.features, facts) as out:
        loss = nn.functional.cross_entropy(replica(own.features), own.labels)
        weight = sizes[rank.rank] * rank.world_size / settings.batch_size
        (loss * weight if settings.weighted else loss).backward()
        averaged = flat_gradient(model)
        out(averaged)
        facts["losses"] = [*of_all_ranks(rank, loss.item())]
    compare(rank, whole, batch, averaged)
    if settings.norm == "batch":
        watch_buffers(rank, replica, own.features)


def _batch(rank: Rank[StepSettings]) -> Samples:
    """The batch of all ranks, each feature scaled over it."""
    batch = lesson_for(rank).training.take(slice(0, rank.settings.batch_size))
    scaled = Scaling.of(batch.features).apply(batch.features)
    return Samples(scaled.to(rank.device), batch.labels.to(rank.device))


def _network(rank: Rank[StepSettings]) -> nn.Module:
    """The classifier, with a normalization behind its first layer where one is asked for."""
    settings = rank.settings
    torch.manual_seed(rank.seed)
    dtype = getattr(torch, settings.dtype)
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    layers = list(mlp(widths, dtype=dtype))
    norms: dict[str, list[nn.Module]] = {
        "none": [],
        "batch": [nn.BatchNorm1d(widths[1], dtype=dtype)],
        "layer": [nn.LayerNorm(widths[1], dtype=dtype)],
    }
    if settings.norm == "none":
        rank.describe(description(widths, [range(rank.world_size)] * 2, dtype))
    return nn.Sequential(layers[0], *norms[settings.norm], *layers[1:]).to(rank.device)


def sampled(rank: Rank[SamplerSettings]) -> None:
    """The samples that `DistributedSampler` gives each rank, and their order in each epoch."""
    settings = rank.settings
    samples = torch.arange(settings.num_samples)
    numbered = cast("Dataset[int]", range(settings.num_samples))  # it asks for their number only
    sampler: DistributedSampler[int] = DistributedSampler(
        numbered, seed=rank.seed, drop_last=settings.drops_last
    )
    own = list(sampler)
    facts: dict[str, Setting] = {"own": [*own]}
    with rank.predict("samples", "ask the sampler for an epoch's samples", samples, facts) as out:
        out(torch.tensor(own))
        given = [sample for of_rank in of_all_ranks(rank, own) for sample in of_rank]
        facts["num_given"] = len(given)
        facts["num_distinct"] = len(set(given))
    facts = {}
    with rank.predict("epochs", "ask the sampler again in each epoch", samples, facts) as out:
        without = [tuple(sampler) for _ in range(settings.num_epochs)]
        with_epoch = []
        for epoch in range(settings.num_epochs):
            sampler.set_epoch(epoch)
            with_epoch.append(tuple(sampler))
        out(torch.tensor(with_epoch[-1]))
        facts["num_orders_without_epoch"] = len(set(without))
        facts["num_orders_with_epoch"] = len(set(with_epoch))


def drawn(rank: Rank[DropoutSettings]) -> None:
    """One draw of dropout on every rank: the same mask, or one of its own?"""
    settings = rank.settings
    torch.manual_seed(rank.seed + (rank.rank if settings.seeds_by_rank else 0))
    samples = torch.ones(1, settings.num_features)
    facts: dict[str, Setting] = {}
    with rank.predict("dropout", "drop features at random", samples, facts) as out:
        kept = nn.functional.dropout(samples, settings.dropout)
        out(kept)
        facts["num_distinct"] = len(set(of_all_ranks(rank, parameter_digest([kept]))))


STRATEGIES = {"one_step": one_step, "sampled": sampled, "drawn": drawn}

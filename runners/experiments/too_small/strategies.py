"""The same batch on one device and under DDP over two ranks, in turns, for each width."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.too_small import Settings
from runners.experiments.too_small.break_even import break_even, spread
from runners.ranks.rank import Rank
from runners.training.networks import description, flat, mlp

NUM_SETTLING_TURNS = 3  # the first build DDP's buckets and fill caches


def take_turns(rank: Rank[Settings]) -> None:
    """Sweep over the widths; a metered pass takes the widest under DDP alone."""
    settings = rank.settings
    own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
    everywhere = [range(rank.world_size)] * settings.num_layers
    rank.describe(description(settings.layers_of(settings.widths[-1]), everywhere))
    if rank.is_metered:
        replica = Trainee(rank, settings.widths[-1], own, wrapped=True)
        rank.watch(replica.model, replica.optimizer)
        for _ in rank.steps(1):
            replica.step(rank)
        return
    alone: list[list[float]] = []
    shared: list[list[float]] = []
    apart: list[float] = []
    for width in settings.widths:
        single = Trainee(rank, width, slice(None), wrapped=False)
        replica = Trainee(rank, width, own, wrapped=True)
        start = flat(single.model)
        one, two = _turns(rank, single, replica)
        alone.append(one)
        shared.append(two)
        rank.measure_seconds(f"single_{width}", one)
        rank.measure_seconds(f"ddp_{width}", two)
        if rank.rank == 0:
            way = (flat(single.model) - start).norm()
            apart.append(((flat(replica.model) - flat(single.model)).norm() / way).item())
    if rank.rank == 0:
        rank.measure("relative_differences", apart)
        _measure_break_even(rank, alone, shared)


class Trainee:
    """One model on some samples: alone, or as a replica under DDP."""

    def __init__(self, rank: Rank[Settings], width: int, samples: slice, *, wrapped: bool) -> None:
        settings = rank.settings
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.global_batch_size, width)
        features = torch.randn(shape, generator=source)[samples]
        labels = torch.randint(0, width, shape[:1], generator=source)[samples]
        self.features = features.clone().to(rank.device)
        self.labels = labels.clone().to(rank.device)
        rank.inputs(self.features, self.labels)
        torch.manual_seed(rank.seed)
        self.model: nn.Module = mlp(settings.layers_of(width), device=rank.device)
        self.called = DistributedDataParallel(self.model) if wrapped else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)

    def step(self, rank: Rank[Settings]) -> None:
        """Forward, backward, update; marked, because two trainees take turns."""
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(self.called(self.features), self.labels)
        with rank.phase("backward"):
            loss.backward()
        with rank.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()


def _turns(
    rank: Rank[Settings], single: Trainee, replica: Trainee
) -> tuple[list[float], list[float]]:
    """Seconds of rank 0's steps alone and under DDP, turn by turn."""
    alone, shared = [], []
    for _ in range(NUM_SETTLING_TURNS + rank.settings.num_turns):
        dist.barrier()
        if rank.rank == 0:
            alone.append(_timed(rank, single.step))
        dist.barrier()
        shared.append(_timed(rank, replica.step))
    return alone[NUM_SETTLING_TURNS:], shared[NUM_SETTLING_TURNS:]


def _timed(rank: Rank[Settings], step: Callable[[Rank[Settings]], None]) -> float:
    start = time.perf_counter()
    step(rank)
    rank.settle()
    return time.perf_counter() - start


def _measure_break_even(
    rank: Rank[Settings], alone: list[list[float]], shared: list[list[float]]
) -> None:
    sizes = rank.settings.num_parameters
    found = break_even(sizes, alone, shared)
    scatter = spread(sizes, alone, shared, rank.seed)
    faster = sum(median(two) < median(one) for one, two in zip(alone, shared, strict=True))
    rank.measure("num_sizes_faster", faster)
    rank.measure("break_even_place", found.place)
    rank.measure("num_break_even", round(found.size))
    rank.measure("num_break_even_low", round(scatter.low))
    rank.measure("num_break_even_high", round(scatter.high))
    rank.measure("inside_share", scatter.inside_share)


STRATEGIES = {"take_turns": take_turns}

"""Models too small to distribute: one device against two ranks, over the size of the model.

The same two processes take turns: rank 0 trains alone on the whole batch while rank 1 waits, then
both train under DDP on their shares. Whatever disturbs the machine disturbs both alike. The size at
which the two times would be equal is interpolated, and resampled from the raw times for its spread.

    python -m runners run too_small
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings, closed_form
from runners.plans.work import mlp_parameters
from runners.ranks.rank import Rank
from runners.training.networks import description, flat, mlp


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
            replica.step()
        return
    alone, shared, apart = [], [], []
    for width in settings.widths:
        single = Trainee(rank, width, slice(None), wrapped=False)
        replica = Trainee(rank, width, own, wrapped=True)
        start = flat(single.model)
        one: list[float] = []
        two: list[float] = []
        for _ in range(NUM_SETTLING_TURNS + settings.num_turns):
            dist.barrier()
            if rank.rank == 0:
                one.append(single.step())
            dist.barrier()
            two.append(replica.step())
        alone.append(one[NUM_SETTLING_TURNS:])
        shared.append(two[NUM_SETTLING_TURNS:])
        rank.measure_seconds(f"single_{width}", alone[-1])
        rank.measure_seconds(f"ddp_{width}", shared[-1])
        way = (flat(single.model) - start).norm()
        apart.append(((flat(replica.model) - flat(single.model)).norm() / way).item())
    if rank.rank == 0:
        rank.measure("relative_differences", apart)
        _measure_break_even(rank, alone, shared)


class Trainee:
    """One model on some samples: alone, or as a replica under DDP."""

    def __init__(self, rank: Rank[Settings], width: int, samples: slice, *, wrapped: bool) -> None:
        self.rank, settings = rank, rank.settings
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

    def step(self) -> float:
        """The seconds of forward, backward, update; marked, because two trainees take turns."""
        start = time.perf_counter()
        with self.rank.phase("forward"):
            loss = cross_entropy(self.called(self.features), self.labels)
        with self.rank.phase("backward"):
            loss.backward()
        with self.rank.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.rank.settle()
        return time.perf_counter() - start


# --- from which size on the second of two ways is faster

NUM_DRAWS = 500
TAIL = 0.05  # of the draws, left out at each end of the spread
Times = Sequence[Sequence[float]]  # raw seconds, some for each size


class BreakEven(NamedTuple):
    """Where the second way begins to be faster.

    `size` is interpolated; where it lies outside of the sizes, the nearest of them, as a bound:
    `below` them where the second way is faster at all, `beyond` where it is not at the largest.
    """

    size: float
    place: str  # inside, below or beyond


def break_even(sizes: Sequence[int], first: Times, second: Times) -> BreakEven:
    """The size from which on the second way is faster, on logarithmic scales; sizes ascend."""
    gains = [math.log(median(a) / median(b)) for a, b in zip(first, second, strict=True)]
    last_loss = max((i for i, gain in enumerate(gains) if gain <= 0), default=None)
    if last_loss is None:
        return BreakEven(float(sizes[0]), "below")
    if last_loss == len(sizes) - 1:
        return BreakEven(float(sizes[-1]), "beyond")
    low, high = (math.log(sizes[last_loss + step]) for step in (0, 1))
    share = -gains[last_loss] / (gains[last_loss + 1] - gains[last_loss])
    return BreakEven(math.exp(low + share * (high - low)), "inside")


def redrawn(sizes: Sequence[int], first: Times, second: Times, seed: int) -> list[BreakEven]:
    """The break-evens of samples that are drawn anew, with replacement."""
    source = random.Random(seed)

    def drawn(way: Times) -> Times:
        return [source.choices(times, k=len(times)) for times in way]

    return [break_even(sizes, drawn(first), drawn(second)) for _ in range(NUM_DRAWS)]


def _measure_break_even(rank: Rank[Settings], alone: Times, shared: Times) -> None:
    sizes = rank.settings.num_parameters
    found = break_even(sizes, alone, shared)
    draws = redrawn(sizes, alone, shared, rank.seed)
    ordered = sorted(one.size for one in draws)
    cut = int(TAIL * NUM_DRAWS)
    faster = sum(median(two) < median(one) for one, two in zip(alone, shared, strict=True))
    rank.measure("num_sizes_faster", faster)
    rank.measure("break_even_place", found.place)
    rank.measure("num_break_even", round(found.size))
    rank.measure("num_break_even_low", round(ordered[cut]))
    rank.measure("num_break_even_high", round(ordered[-1 - cut]))
    rank.measure("inside_share", sum(one.place == "inside" for one in draws) / NUM_DRAWS)


QUESTION = "From which size on does a model gain from a second rank, with as many samples in all?"
NUM_SETTLING_TURNS = 3  # the first build DDP's buckets and fill caches


class Settings(RunSettings):
    """Models of several widths, each trained on the same global batch."""

    widths: tuple[Count, ...] = (16, 32, 64, 128, 256)
    num_layers: Count = 4
    global_batch_size: Count = 512
    num_turns: Count = 15
    learning_rate: Factor = 0.1
    equal_parts = (("global_batch_size", "world_size"),)

    @closed_form
    def batch_size(self) -> int:
        """Samples of a rank under DDP."""
        return self.global_batch_size // self.world_size

    @closed_form
    def num_parameters(self) -> list[int]:
        """Of each model."""
        return [mlp_parameters(self.layers_of(width)) for width in self.widths]

    def layers_of(self, width: int) -> tuple[int, ...]:
        """Input and output widths of all layers of one model."""
        return (width,) * (self.num_layers + 1)


sweep = partial(RunPlan, "take_turns", 2, has_timeline=False)
FAR = Settings(widths=(16, 32, 64, 128, 256, 512, 1024), global_batch_size=1024, num_turns=30)
RUNS = {
    "sweep": sweep(Settings()),
    "sweep_few_samples": sweep(Settings(global_batch_size=64)),
    "sweep_far": sweep(FAR, full=True),
}
TRIED_WITH = {"sweep_far": {"widths": [16, 64, 256], "num_turns": 5}}
ON_CUDA = {"*": {"widths": [128, 256, 512, 1024, 2048, 4096], "global_batch_size": 4096}}

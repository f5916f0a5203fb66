"""Models too small to distribute: one device against two ranks, over the size of the model.

The same two processes take turns: rank 0 trains alone on the whole batch while rank 1 waits, then
both train under DDP on their shares. Whatever disturbs the machine so disturbs both ways alike.
Where the two times would meet is interpolated, and drawn anew from the raw samples for its spread.

    python -m runners run too_small
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._too_small_break_even import break_even, spread
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Work, perceptron_parameters
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, flat, perceptron

QUESTION = "From which size on is a model worth a second rank, with as many rows in all?"

BYTES_PER_VALUE = 4
LABEL_BYTES = 8
NUM_SETTLING_TURNS = 3  # the first build DDP's buckets and fill caches
SETTINGS: dict[str, Setting] = {
    "widths": [16, 32, 64, 128, 256],
    "num_layers": 4,
    "global_batch_size": 512,
    "num_turns": 15,
    "learning_rate": 0.1,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the parameters of each model and the rows of a rank.

    Raises:
        ValueError: the widths do not ascend, or the batch cannot be dealt out equally.
    """
    settings = dict(plan.settings)
    widths, rows = settings["widths"], whole_number(settings, "global_batch_size")
    if not isinstance(widths, list) or len(widths) < 2:
        raise ValueError(f"widths must be at least two, not {widths!r}")
    if any(low >= high for low, high in pairwise(_whole(width) for width in widths)):
        raise ValueError(f"widths must ascend, not {widths!r}")
    if rows % plan.world_size:
        raise ValueError(f"global_batch_size {rows} is not divisible by {plan.world_size} ranks")
    layers = whole_number(settings, "num_layers")
    settings["batch_size"] = rows // plan.world_size
    settings["num_parameters"] = [perceptron_parameters(_layers(w, layers)) for w in widths]
    return replace(plan, settings=settings)


def _whole(width: object) -> int:
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"widths must be whole numbers above zero, not {width!r}")
    return width


def _layers(width: object, num_layers: int) -> tuple[int, ...]:
    return (_whole(width),) * (num_layers + 1)


def _plan(*, full: bool = False, **changed: Setting) -> RunPlan:
    settings = {**SETTINGS, **changed}
    return settle(RunPlan("take_turns", 2, settings, has_timeline=False, full=full))


RUNS = {
    "sweep": _plan(),
    "sweep_few_rows": _plan(global_batch_size=64),
    "sweep_far": _plan(
        widths=[16, 32, 64, 128, 256, 512, 1024], global_batch_size=1024, num_turns=30, full=True
    ),
}
ON_CUDA = {"*": {"widths": [128, 256, 512, 1024, 2048, 4096], "global_batch_size": 4096}}


def forecast(plan: RunPlan) -> Work:
    """The peak of the largest model under DDP; what is timed here are turns and no steps."""
    settings = plan.settings
    widths, layers = settings["widths"], whole_number(settings, "num_layers")
    assert isinstance(widths, list)
    width, rows = _whole(widths[-1]), whole_number(settings, "batch_size")
    model = BYTES_PER_VALUE * perceptron_parameters(_layers(width, layers))
    one, layer = BYTES_PER_VALUE * rows * width, model // layers
    worst = max((layers + 2) * one, 3 * one + (layers - 1) * layer, model + one)
    return Work(peak_bytes=2 * model + one + rows * LABEL_BYTES + worst)


class Trainee:
    """One model on some rows: alone, or as a replica under DDP."""

    def __init__(self, rank: Rank, width: int, rows: slice, *, wrapped: bool) -> None:
        settings = rank.settings
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.global_batch_size, width)
        features = torch.randn(shape, generator=source)[rows]
        labels = torch.randint(0, width, shape[:1], generator=source)[rows]
        self.features, self.labels = (
            features.clone().to(rank.device),
            labels.clone().to(rank.device),
        )
        rank.rows(self.features, self.labels)
        torch.manual_seed(rank.seed)
        self.model: nn.Module = perceptron((width,) * (settings.num_layers + 1), device=rank.device)
        self.called = DistributedDataParallel(self.model) if wrapped else self.model
        rate = settings.learning_rate
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)

    def step(self, rank: Rank) -> None:
        """Forward, backward, update."""
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(self.called(self.features), self.labels)
        with rank.phase("backward"):
            loss.backward()
        with rank.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()


def take_turns(rank: Rank) -> None:
    """Sweep over the widths; a metered pass takes the widest under DDP alone."""
    settings = rank.settings
    own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
    widest = (settings.widths[-1],) * (settings.num_layers + 1)
    rank.describe(description(widest, [range(rank.world_size)] * settings.num_layers))
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


def _turns(rank: Rank, single: Trainee, replica: Trainee) -> tuple[list[float], list[float]]:
    """Seconds of rank 0's steps alone and under DDP, turn by turn."""
    alone, shared = [], []
    for _ in range(NUM_SETTLING_TURNS + rank.settings.num_turns):
        dist.barrier()
        if rank.rank == 0:
            alone.append(_timed(rank, single.step))
        dist.barrier()
        shared.append(_timed(rank, replica.step))
    return alone[NUM_SETTLING_TURNS:], shared[NUM_SETTLING_TURNS:]


def _timed(rank: Rank, step: Callable[[Rank], None]) -> float:
    start = time.perf_counter()
    step(rank)
    rank.settle()
    return time.perf_counter() - start


def _measure_break_even(rank: Rank, alone: list[list[float]], shared: list[list[float]]) -> None:
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

"""What a machine does in how long: its primitives.

An experiment that is no part of the book: `runners.plans.experiment.find` knows it by name, nothing
lists it. Its ranks are the launcher's own: forked, one thread each, with the allocator of timed
passes. Each primitive is taken with one, two and four ranks busy at once, since ranks share cores,
caches and memory.

    matrix_{rows}x{size}_{busy}_seconds      the three products of one linear layer's step
    elementwise_{bytes}_{busy}_seconds       a ReLU over so many bytes, and its result's memory
    {collective}_{ranks}_{bytes}_seconds     one call over so many bytes, as its first rank sees it
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from runners.plans.experiment import RunPlan
from runners.primitives.measured import LARGE_BYTES, ROWS, SMALL_BYTES, VALUE_BYTES, WIDTH
from runners.ranks.rank import Rank

QUESTION = "What does this machine do in how long?"

BUSY = (1, 2, 4)  # ranks that do the same at once
NUM_CALLS = {SMALL_BYTES: 15, LARGE_BYTES: 6}  # of a collective, by bytes
MOST_SAMPLES, FEWEST_SAMPLES = 15, 5
POINT_SECONDS = 0.08  # of one primitive, or what the fewest samples take
SAMPLE_SECONDS = 0.002  # the least that one sample takes: shorter ones are repeated within it
NUM_SETTLING = 3
FLOAT_BYTES = 4


def _together(rank: Rank) -> None:
    """All ranks begin a primitive at the same time, so that they are busy at once."""
    rank.settle()
    if rank.world_size > 1:
        dist.barrier()


def _sample(rank: Rank, do: Callable[[], object], repeats: int = 1) -> float:
    """Seconds of one call, as the mean of some."""
    start = time.perf_counter()
    for _ in range(repeats):
        do()
    rank.settle()
    return (time.perf_counter() - start) / repeats


def _layer(rank: Rank) -> Callable[[], object]:
    """The three products of a linear layer: its output, its weight's and its input's gradient."""
    given = torch.randn(ROWS, WIDTH, device=rank.device)
    weight = torch.randn(WIDTH, WIDTH, device=rank.device)
    gradient = torch.randn(ROWS, WIDTH, device=rank.device)
    return lambda: (given @ weight.T, gradient.T @ given, gradient @ weight)


def compute(rank: Rank) -> None:
    """What a rank does by itself, while as many do the same."""
    values = torch.randn(VALUE_BYTES // FLOAT_BYTES, device=rank.device)
    computed: dict[str, Callable[[], object]] = {
        f"matrix_{ROWS}x{WIDTH}": _layer(rank),
        f"elementwise_{VALUE_BYTES}": partial(torch.relu, values),
    }
    for name, do in computed.items():
        with rank.phase(name):  # a heartbeat, and what a person sees on the terminal
            for _ in range(NUM_SETTLING):
                do()
            repeats = max(1, int(SAMPLE_SECONDS / _sample(rank, do)))
            _together(rank)
            samples: list[float] = []
            end = time.perf_counter() + POINT_SECONDS
            while len(samples) < FEWEST_SAMPLES or time.perf_counter() < end:
                samples.append(_sample(rank, do, repeats))  # to the end, for the others' sake
        rank.measure_seconds(f"{name}_{rank.world_size}_seconds", samples[:MOST_SAMPLES])


def communicate(rank: Rank) -> None:
    """What a collective and a message cost, by bytes; on every rank as often as on the others.

    Before each call a rank computes for a moment, as it does in training: it has to be woken up for
    the call, and to wait for who is late.
    """
    step = _layer(rank)
    for num_bytes, num_calls in NUM_CALLS.items():
        whole = torch.zeros(num_bytes // FLOAT_BYTES, device=rank.device)
        calls: dict[str, tuple[Callable[[], object], int]] = {
            "all_reduce": (partial(dist.all_reduce, whole), 1),
            "send": (partial(_there_and_back, rank, whole), 2),
        }
        for name, (do, num_messages) in calls.items():
            samples = []
            with rank.phase(f"{name} of {num_bytes} bytes"):
                for _ in range(NUM_SETTLING):
                    do()
                _together(rank)
                for _ in range(num_calls):
                    step()
                    samples.append(_sample(rank, do) / num_messages)
            rank.measure_seconds(f"{name}_{rank.world_size}_{num_bytes}_seconds", samples)


def _there_and_back(rank: Rank, whole: Tensor) -> None:
    """A message to the neighbour and one back, between pairs of ranks."""
    peer = rank.rank ^ 1
    passes = (dist.send, dist.recv) if rank.rank < peer else (dist.recv, dist.send)
    for passed in passes:
        passed(whole, peer)


RUNS = {
    f"{strategy}_{n}": RunPlan(strategy, n, passes=("timed",), can_share_device=False)
    for n in BUSY
    for strategy in ("compute", "communicate")
    if n > 1 or strategy == "compute"
}

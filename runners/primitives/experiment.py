"""How fast a machine computes and communicates: its primitives.

An experiment that is no part of the book: `declared/experiment.py` knows it by name, nothing
lists it. Its ranks are the launcher's own: forked, one thread each, with the allocator of timed
passes. Computing is timed with one, two and four ranks busy at once, since ranks share cores,
caches and memory.

    matrix_{rows}x{size}_{busy}_seconds      the three products of one linear layer's step
    all_reduce_{ranks}_{bytes}_seconds       one call over so many bytes, as its first rank sees it
"""

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from runners.declared.experiment import RunPlan
from runners.declared.work import FLOAT_BYTES
from runners.primitives.measured import LARGE_BYTES, ROWS, SMALL_BYTES, WIDTH
from runners.ranks.rank import Rank

QUESTION = "How fast does this machine compute and communicate?"

BUSY = (1, 2, 4)  # ranks that do the same at once
NUM_CALLS = {SMALL_BYTES: 15, LARGE_BYTES: 6}  # of an all_reduce, by bytes
NUM_SAMPLES = 15  # of the products
SAMPLE_SECONDS = 0.002  # the least that one sample takes: shorter ones are repeated within it
NUM_SETTLING = 3


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
    """The products of a layer, while as many ranks compute them."""
    step = _layer(rank)
    with rank.phase("matrix"):
        for _ in range(NUM_SETTLING):
            step()
        repeats = max(1, int(SAMPLE_SECONDS / _sample(rank, step)))
        _together(rank)
        samples = [_sample(rank, step, repeats) for _ in range(NUM_SAMPLES)]
    rank.measure_seconds(f"matrix_{ROWS}x{WIDTH}_{rank.world_size}_seconds", samples)


def communicate(rank: Rank) -> None:
    """An all_reduce, by bytes; on every rank as often as on the others.

    Before each call a rank computes for a moment, as it does in training: it has to be woken up for
    the call, and waits for ranks that are late.
    """
    step = _layer(rank)
    for num_bytes, num_calls in NUM_CALLS.items():
        call = partial(dist.all_reduce, torch.zeros(num_bytes // FLOAT_BYTES, device=rank.device))
        samples = []
        with rank.phase(f"all_reduce of {num_bytes} bytes"):
            for _ in range(NUM_SETTLING):
                call()
            _together(rank)
            for _ in range(num_calls):
                step()
                samples.append(_sample(rank, call))
        rank.measure_seconds(f"all_reduce_{rank.world_size}_{num_bytes}_seconds", samples)


RUNS = {
    f"{strategy}_{n}": RunPlan(strategy, n, passes=("timed",), can_share_device=False)
    for n in BUSY
    for strategy in ("compute", "communicate")
    if n > 1 or strategy == "compute"
}

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

import torch
import torch.distributed as dist
from torch import Tensor

from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank

QUESTION = "What does this machine do in how long?"

BUSY = (1, 2, 4)  # ranks that do the same at once
MATRICES = ((8, 64), (32, 256), (128, 256), (128, 1024), (512, 256), (512, 1024))  # rows, width
ELEMENTWISE_BYTES = (65_536, 1_048_576, 16_777_216)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send")
NUM_REPEATS = {4_096: 60, 262_144: 30, 16_777_216: 6}  # of a collective, by bytes
MOST_SAMPLES, FEWEST_SAMPLES = 15, 5
POINT_SECONDS = 0.08  # of one point of a grid, or what the fewest samples take
SAMPLE_SECONDS = 0.002  # the least that one sample takes: shorter ones are repeated within it
NUM_SETTLING = 3
CHAIN = 6  # results of so many operations are kept at once
FLOAT_BYTES = 4


def _together(rank: Rank) -> None:
    """All ranks begin a point at the same time, so that they are busy at once."""
    rank.settle()
    if rank.world_size > 1:
        dist.barrier()


def _sample(rank: Rank, do: Callable[[], object], repeats: int) -> float:
    """Seconds of one call, as the mean of some."""
    start = time.perf_counter()
    for _ in range(repeats):
        do()
    rank.settle()
    return (time.perf_counter() - start) / repeats


def _timed(rank: Rank, name: str, do: Callable[[], object], calls: int = 1) -> None:
    """Repeat something, itself so many calls, and record what one call took, several times."""
    with rank.phase(name):  # a heartbeat, and what a person sees on the terminal
        for _ in range(NUM_SETTLING):
            do()
        repeats = max(1, int(SAMPLE_SECONDS / _sample(rank, do, 1)))
        _together(rank)
        samples: list[float] = []
        end = time.perf_counter() + POINT_SECONDS
        while len(samples) < FEWEST_SAMPLES or (
            len(samples) < MOST_SAMPLES and time.perf_counter() < end
        ):
            samples.append(_sample(rank, do, repeats) / calls)
        while time.perf_counter() < end:  # who is done early keeps its core busy for the others
            do()
        rank.measure_seconds(name, samples)


def compute(rank: Rank) -> None:
    """What a rank does by itself, while as many do the same."""
    busy = rank.world_size
    for rows, size in MATRICES:
        _timed(rank, f"matrix_{rows}x{size}_{busy}_seconds", _layer(rank, rows, size))
    for num_bytes in ELEMENTWISE_BYTES:
        values = torch.randn(num_bytes // FLOAT_BYTES, device=rank.device)
        name = f"elementwise_{num_bytes}_{busy}_seconds"
        _timed(rank, name, _rectified(values), calls=CHAIN)
        del values


def _layer(rank: Rank, rows: int, size: int) -> Callable[[], object]:
    """The three products of a linear layer: its output, its weight's and its input's gradient."""
    given = torch.randn(rows, size, device=rank.device)
    weight = torch.randn(size, size, device=rank.device)
    gradient = torch.randn(rows, size, device=rank.device)

    def products() -> tuple[Tensor, Tensor, Tensor]:
        return given @ weight.T, gradient.T @ given, gradient @ weight

    return products


def _rectified(values: Tensor) -> Callable[[], object]:
    """ReLUs one after another, whose results are all kept and freed together.

    So it is in training: activations are kept until backward, and memory that was freed may have
    been given back to the kernel, which clears it again before the next step has it.
    """

    def chain() -> list[Tensor]:
        kept = [values]
        for _ in range(CHAIN):
            kept.append(torch.relu(kept[-1]))
        return kept

    return chain


def communicate(rank: Rank) -> None:
    """What each collective costs, by bytes; on every rank as often as on the others.

    Before each call a rank computes for a moment, as it does in training: it has to be woken up for
    the call, and to wait for who is late.
    """
    step = _layer(rank, *MATRICES[0])
    for num_bytes, num_repeats in NUM_REPEATS.items():
        for name in COLLECTIVES:
            do, calls = _collective(rank, name, num_bytes // FLOAT_BYTES)
            samples = []
            with rank.phase(f"{name} of {num_bytes} bytes"):
                for _ in range(NUM_SETTLING):
                    do()
                _together(rank)
                for _ in range(num_repeats):
                    step()
                    samples.append(_sample(rank, do, 1) / calls)
            kept = samples[:: -(-len(samples) // MOST_SAMPLES)]
            rank.measure_seconds(f"{name}_{rank.world_size}_{num_bytes}_seconds", kept)


def _collective(rank: Rank, name: str, num_values: int) -> tuple[Callable[[], object], int]:
    """Something to call, and how many operations that is.

    `num_values` is the payload as the meter counts it: what the whole tensor holds.
    """
    n = rank.world_size
    whole = torch.zeros(num_values // n * n, device=rank.device)
    share = torch.zeros(num_values // n, device=rank.device)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, share),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(share, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "send": lambda: _there_and_back(rank.rank, whole),
    }
    return calls[name], 2 if name == "send" else 1


def _there_and_back(rank: int, whole: Tensor) -> None:
    """A message to the neighbour and one back; with an odd number of ranks the last is idle."""
    peer = rank ^ 1
    if peer >= dist.get_world_size():
        return
    passes = (dist.send, dist.recv) if rank < peer else (dist.recv, dist.send)
    for passed in passes:
        passed(whole, peer)


STRATEGIES = {"compute": compute, "communicate": communicate}
RUNS = {
    f"{strategy}_{n}": RunPlan(strategy, n, passes=("timed",), can_share_device=False)
    for n in BUSY
    for strategy in STRATEGIES
    if n > 1 or strategy == "compute"
}

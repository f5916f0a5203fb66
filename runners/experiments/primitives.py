"""How fast a machine computes and communicates: the rates that other experiments are compared with.

`compute` times the three products of a linear layer's step, with one rank at work and with two,
since ranks share caches and memory. `communicate` times an all-reduce of few bytes and of many.

    python -m runners run primitives
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from proofbook.runners.api import Count, Declaration, RunSettings
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.training.rank import Rank


def compute(rank: Rank[LayerSettings]) -> None:
    """Record seconds of the three products of a linear layer's step on all ranks, and FLOPs."""
    step = _layer(rank, rank.settings)
    with rank.phase("matrix"):
        for _ in range(NUM_SETTLING):
            step()
        repeats = max(1, int(SAMPLE_SECONDS / _sample(rank, step)))
        _together(rank)
        samples = [_sample(rank, step, repeats) for _ in range(rank.settings.num_times)]
    rank.measure_seconds("layer", samples)
    num_flops = 3 * 2 * rank.settings.num_rows * rank.settings.width**2
    rank.measure("num_flops", num_flops, unit="FLOP")


def communicate(rank: Rank[PayloadSettings]) -> None:
    """Record seconds of all_reduces of each payload, before each of which a rank computes.

    So a rank has to be woken up for the call, and waits for ranks that are late.
    """
    step = _layer(rank, LayerSettings())
    for num_bytes in rank.settings.sizes_bytes:
        call = partial(dist.all_reduce, torch.zeros(num_bytes // FLOAT_BYTES, device=rank.device))
        samples = []
        with rank.phase(f"all_reduce of {num_bytes} bytes"):
            for _ in range(NUM_SETTLING):
                call()
            _together(rank)
            for _ in range(rank.settings.num_times):
                step()
                rank.settle()  # or, on a GPU, the sample would contain the products
                samples.append(_sample(rank, call))
        rank.measure_seconds(f"all_reduce_{num_bytes}", samples)


def _layer(rank: Rank, layer: LayerSettings) -> Callable[[], object]:
    """The products of a layer: its output, and the gradients of its weight and of its input."""
    given = torch.randn(layer.num_rows, layer.width, device=rank.device)
    weight = torch.randn(layer.width, layer.width, device=rank.device)
    gradient = torch.randn(layer.num_rows, layer.width, device=rank.device)
    return lambda: (given @ weight.T, gradient.T @ given, gradient @ weight)


def _together(rank: Rank) -> None:
    """All ranks begin at the same time, so that they are busy at once."""
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


QUESTION = "How fast does this machine compute and communicate?"
SAMPLE_SECONDS = 0.002  # the least that one sample takes: shorter ones are repeated within it
NUM_SETTLING = 3


class LayerSettings(RunSettings):
    """The layer whose products are timed."""

    num_rows: Count = 512
    width: Count = 256
    num_times: Count = 15


class PayloadSettings(RunSettings):
    """The payloads of the all-reduce."""

    sizes_bytes: tuple[Count, Count] = (4_096, 16_777_216)
    num_times: Count = 15


declared = partial(Declaration, passes=("timed",), can_share_device=False)
RUNS = {
    "compute_1": declared("compute", 1, LayerSettings()),
    "compute_2": declared("compute", 2, LayerSettings()),
    "communicate_2": declared("communicate", 2, PayloadSettings()),
    "communicate_4": declared("communicate", 4, PayloadSettings()),
}
ON_CUDA = {  # at the sizes of a CPU, launches would be timed
    run: {"num_rows": 8192, "width": 8192} for run in ("compute_1", "compute_2")
}
TRIED_WITH = {"*": {"num_times": 5}}

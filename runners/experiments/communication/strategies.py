"""Time each collective at each size and fit α and β; or count its bytes on the link."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from runners.experiments.communication import OPERATIONS, VALUE_BYTES, Settings, Timed
from runners.experiments.communication.alpha_beta import fit
from runners.ranks.rank import Rank


def timed(rank: Rank[Timed]) -> None:
    """Steps of one all_reduce; then every operation at every size, in turns; then the fits."""
    settings = rank.settings
    largest = _payload(rank, settings.largest_bytes)
    for _ in rank.steps(settings.num_steps):
        with rank.phase("all_reduce", computes=False):
            dist.all_reduce(largest)
    payloads = {size: _payload(rank, size) for size in settings.sizes_bytes}
    calls = {size: _operations(payload, rank.world_size) for size, payload in payloads.items()}
    for operation in OPERATIONS:
        with rank.phase(operation, computes=False):
            _timed_operation(rank, operation, {size: calls[size][operation] for size in calls})


def _operations(whole: Tensor, world_size: int) -> dict[str, Callable[[], object]]:
    """Each operation over a payload, ready to be called; the payload is the whole on every rank."""
    share = torch.empty_like(whole[: whole.numel() // world_size])
    other = torch.empty_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(share, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(other, share),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }


def _payload(rank: Rank[Settings], num_bytes: int) -> Tensor:
    """Zeros, so that sums stay finite however often they are taken."""
    return torch.zeros(num_bytes // VALUE_BYTES, device=rank.device)


def _timed_operation(
    rank: Rank[Timed], operation: str, calls: dict[int, Callable[[], object]]
) -> None:
    """Raw samples of one operation at each size, and what fits them: one fit a turn."""
    taken: dict[int, list[float]] = {size: [] for size in calls}
    for turn in range(rank.settings.num_turns + 1):
        for size, call in calls.items():
            seconds = _seconds(rank, call)
            if turn:  # the first finds cold caches and connections that have not grown yet
                taken[size].append(seconds)
    for size, samples in taken.items():
        rank.measure_seconds(f"{operation}_{size}", samples)
    fits = [fit(list(calls), turn) for turn in zip(*taken.values(), strict=True)]
    rank.measure_seconds(f"{operation}_alpha", [f.alpha for f in fits])
    rank.measure_seconds(f"{operation}_beta_a_mebibyte", [f.beta * (1 << 20) for f in fits])
    medians = [statistics.median(samples) for samples in taken.values()]
    whole = fit(list(calls), medians)
    residuals = [m - whole.seconds(size) for size, m in zip(calls, medians, strict=True)]
    rank.measure_seconds(f"{operation}_residual", residuals)


def _seconds(rank: Rank[Settings], call: Callable[[], object]) -> float:
    """One call, from when all ranks are ready to when this rank has its result."""
    dist.barrier()
    rank.settle()
    start = time.perf_counter()
    call()
    rank.settle()
    return time.perf_counter() - start


def counted(rank: Rank[Settings]) -> None:
    """Every operation at every size, once, between two readings of this rank's link."""
    for size in rank.settings.sizes_bytes:
        calls = _operations(_payload(rank, size), rank.world_size)
        for operation in OPERATIONS:
            with rank.phase(operation, computes=False):
                _count(rank, f"{operation}_{size}", calls[operation])


def _count(rank: Rank[Settings], name: str, call: Callable[[], object]) -> None:
    """Count what one call sends and receives, while no other call is on its way."""
    before = rank.link_count()
    call()
    after = rank.link_count()
    assert before is not None
    assert after is not None
    passed = after - before
    rank.measure(f"{name}_sent_bytes", passed.sent_payload_bytes)
    rank.measure(f"{name}_received_bytes", passed.received_payload_bytes)
    rank.measure(f"{name}_headers_bytes", passed.sent_bytes - passed.sent_payload_bytes)


STRATEGIES = {"timed": timed, "counted": counted}

"""Answers as a table, best first, and as JSON. No torch.

In: answers, the memory of a device, and the cluster. Out: lines. `runners.traces.device_memory`
says which strategies fit; those are ordered by the law of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runners.planning.answer import Answer, RankPlan
from runners.planning.law_of_time import Cluster
from runners.traces import device_memory

GIB = 2**30
_HEAD = (
    f"{'strategy':<18}{'fits':>9}{'needs':>9}{'reserved':>10}{'peak':>9}"
    f"{'params':>9}{'grads':>8}{'optim':>8}{'activ':>8}{'bufs':>7}{'TFLOP':>9}{'time ≥':>10}"
    "  payload of a step"
)
_UNITS = (
    f"{'':<27}" + "sizes in GiB, of the fullest rank; needs: "
    f"{1 + device_memory.ERROR:g} × reserved, {device_memory.OUTSIDE_SAYS}"
)


def fullest(answer: Answer) -> RankPlan | None:
    """The rank whose allocator reserves most; None where there is none."""
    return max(answer.ranks, key=lambda one: one.reserved_bytes, default=None)


def needs(answer: Answer) -> int:
    """Memory of a device that each rank of a strategy needs to fit."""
    num = answer.question.num_microbatches
    return max(
        device_memory.needed_bytes(one.reserved_bytes, one.num_communicators(num))
        for one in answer.ranks
    )


def verdict(answer: Answer, memory_bytes: float) -> device_memory.Verdict:
    """Whether a strategy fits a device; one without ranks does not."""
    if not answer.ranks:
        return "no"
    least = max(device_memory.least_bytes(one.allocated_bytes) for one in answer.ranks)
    return device_memory.verdict(memory_bytes, needs(answer), least)


def ordered(answers: Sequence[Answer], memory_bytes: float, cluster: Cluster) -> list[Answer]:
    """Best first; strategies that cannot be simulated come last."""

    def key(answer: Answer) -> tuple[Any, ...]:
        rank = fullest(answer)
        if rank is None:
            return (3,)
        found = verdict(answer, memory_bytes)
        if found != "fits":
            return 1 + (found == "no"), rank.reserved_bytes
        law = answer.bounds(cluster)
        return 0, float(f"{law.at_least:.2g}"), law.at_most, rank.reserved_bytes

    return sorted(answers, key=key)


def lines(answers: Sequence[Answer], memory_bytes: float, cluster: Cluster) -> list[str]:
    """The table."""
    rows = [_line(one, memory_bytes, cluster) for one in ordered(answers, memory_bytes, cluster)]
    return [_HEAD, _UNITS, *rows]


def _line(answer: Answer, memory_bytes: float, cluster: Cluster) -> str:
    name = f"{answer.question.strategy.name:<18}"
    rank = fullest(answer)
    if rank is None:
        return f"{name}  not planned: {answer.reason}"
    held = rank.at_peak
    columns = [(needs(answer), 9), (rank.reserved_bytes, 10), (rank.peak_bytes, 9)]
    columns += [(held.parameters_bytes, 9), (held.gradients_bytes, 8), (held.optimizer_bytes, 8)]
    columns += [(held.activations_bytes, 8), (held.buckets_bytes + held.buffers_bytes, 7)]
    sizes = "".join(f"{size / GIB:{width}.2f}" for size, width in columns)
    at_least = f"{answer.bounds(cluster).at_least:8.3f} s"
    flops = max(one.flops for one in answer.ranks) / 1e12
    payload = ", ".join(
        f"{one.operation} {one.axis} {one.bytes / GIB:.2f}"
        for one in sorted(rank.calls, key=lambda one: -one.bytes)
        if one.bytes >= GIB / 200
    )
    found = f"{verdict(answer, memory_bytes):>9}{sizes}{flops:9.2f}{at_least}"
    return f"{name}{found}  {payload or 'none'}"


def document(
    answers: Sequence[Answer], memory_bytes: float, cluster: Cluster
) -> list[dict[str, Any]]:
    """The same, every value, for JSON."""
    return [
        {
            **one.model_dump(mode="json"),
            "verdict": verdict(one, memory_bytes),
            "needed_bytes": needs(one) if one.ranks else None,
            "seconds": one.bounds(cluster).document() if one.ranks else None,
        }
        for one in ordered(answers, memory_bytes, cluster)
    ]

"""Answers as a table, best first, and as JSON. No torch.

In: answers and the memory of a device. Out: lines. A strategy fits if what the allocator reserves
does; among those that fit, the one with the least time bound is best, or without rates the one
whose busiest rank computes least and then sends least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runners.planning.answer import Answer, RankPlan, sent_bytes

GIB = 2**30
_HEAD = (
    f"{'strategy':<18}{'fits':>5}{'spare':>9}{'reserved':>10}{'peak':>9}"
    f"{'params':>9}{'grads':>8}{'optim':>8}{'activ':>8}{'bufs':>7}{'TFLOP':>9}{'time ≥':>10}"
    "  payload of a step"
)
_UNITS = (
    f"{'':<23}" + "sizes in GiB, of the busiest rank; spare: memory of the device less reserved"
)


@dataclass(frozen=True)
class Rates:
    """What a device does in a second: floating-point operations, and bytes that it sends."""

    flops: float | None = None
    link: float | None = None


def ordered(answers: Sequence[Answer], memory_bytes: float, rates: Rates) -> list[Answer]:
    """Best first; strategies that cannot be simulated come last."""

    def key(answer: Answer) -> tuple[Any, ...]:
        rank = answer.busiest
        if rank is None:
            return (2,)
        if rank.reserved_bytes > memory_bytes:
            return 1, rank.reserved_bytes
        flops = max(one.flops for one in answer.ranks)
        sent = max(sum(map(sent_bytes, one.calls)) for one in answer.ranks)
        bound = answer.seconds_at_least(rates.flops, rates.link)
        return 0, bound or 0.0, float(f"{flops:.1e}"), sent, rank.reserved_bytes

    return sorted(answers, key=key)


def lines(answers: Sequence[Answer], memory_bytes: float, rates: Rates) -> list[str]:
    """The table."""
    rows = [_line(one, memory_bytes, rates) for one in ordered(answers, memory_bytes, rates)]
    return [_HEAD, _UNITS, *rows]


def _line(answer: Answer, memory_bytes: float, rates: Rates) -> str:
    name = f"{answer.question.strategy.name:<18}"
    rank = answer.busiest
    if rank is None:
        return f"{name}  not planned: {answer.reason}"
    spare = memory_bytes - rank.reserved_bytes
    held = rank.at_peak
    sizes = "".join(
        f"{size / GIB:{width}.2f}"
        for size, width in (
            (spare, 9),
            (rank.reserved_bytes, 10),
            (rank.peak_bytes, 9),
            (held.parameters_bytes, 9),
            (held.gradients_bytes, 8),
            (held.optimizer_bytes, 8),
            (held.activations_bytes, 8),
            (held.buckets_bytes + held.buffers_bytes, 7),
        )
    )
    bound = answer.seconds_at_least(rates.flops, rates.link)
    at_least = f"{bound:8.3f} s" if bound is not None else f"{'–':>10}"
    flops = max(one.flops for one in answer.ranks) / 1e12
    fits = "yes" if spare >= 0 else "no"
    return f"{name}{fits:>5}{sizes}{flops:9.2f}{at_least}  {_payload(rank)}"


def _payload(rank: RankPlan) -> str:
    parts = [
        f"{one.operation} {one.axis} {one.bytes / GIB:.2f}"
        for one in sorted(rank.calls, key=lambda one: -one.bytes)
        if one.bytes >= GIB / 200
    ]
    return ", ".join(parts) or "none"


def document(answers: Sequence[Answer], memory_bytes: float, rates: Rates) -> list[dict[str, Any]]:
    """The same, every value, for JSON."""
    return [
        {
            **one.model_dump(mode="json"),
            "fits": rank is not None and rank.reserved_bytes <= memory_bytes,
            "spare_bytes": None if rank is None else memory_bytes - rank.reserved_bytes,
            "seconds_at_least": one.seconds_at_least(rates.flops, rates.link),
        }
        for one in ordered(answers, memory_bytes, rates)
        for rank in (one.busiest,)
    ]

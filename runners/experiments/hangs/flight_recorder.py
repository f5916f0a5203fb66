"""Who waits for whom: read off torch's flight recorder, rank by rank.

In: each rank's dump, a list of the collectives that it has called, in order. Out: a `Finding` in
numbers and in words. On gloo the recorder knows what was called and in which order, and not whether
it ended: every entry stays `scheduled`. So a finding compares orders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from torch._C import _distributed_c10d

SIZE = "TORCH_FR_BUFFER_SIZE"
NUM_KEPT = "2000"


def switch_on() -> None:
    """Let every group that is made from now on keep its last calls."""
    os.environ[SIZE] = NUM_KEPT


@dataclass(frozen=True)
class Call:
    """One collective as a rank called it."""

    operation: str
    sizes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        sizes = ", ".join("×".join(map(str, size)) for size in self.sizes)
        return f"{self.operation} of {sizes}" if sizes else self.operation


def calls(group: str) -> list[Call]:
    """What this rank has called in one group, in order.

    Args:
        group: its name, as `ProcessGroup.group_name` gives it.
    """
    dump = json.loads(_distributed_c10d._dump_fr_trace_json())  # type: ignore[attr-defined]
    return [
        Call(
            entry["profiling_name"].partition(":")[2],
            tuple(tuple(size) for size in entry["input_sizes"]),
        )
        for entry in sorted(dump["entries"], key=lambda e: e["collective_seq_id"])
        if entry["process_group"][0] == group
    ]


@dataclass(frozen=True)
class Finding:
    """The first call at which ranks part, counted from 1; 0 where all called the same."""

    first_apart: int
    waiting: tuple[int, ...]
    in_words: str


def compare(by_rank: Sequence[Sequence[Call]]) -> Finding:
    """Find the first call in which the ranks differ, or that some of them never made."""
    if not any(by_rank):
        return Finding(0, (), "no call was let through")
    for index in range(max(len(made) for made in by_rank)):
        here = [made[index] if index < len(made) else None for made in by_rank]
        if len(set(here)) == 1:
            continue
        if None in here:
            there = tuple(r for r, call in enumerate(here) if call is not None)
            gone = [r for r, call in enumerate(here) if call is None]
            words = (
                f"{_named(there)} called {here[there[0]]} as call {index + 1}; "
                f"{_named(gone)} made {index} calls and never this one"
            )
            return Finding(index + 1, there, words)
        words = "; ".join(f"{_named([r])} called {call}" for r, call in enumerate(here))
        return Finding(index + 1, tuple(range(len(here))), f"as call {index + 1} {words}")
    return Finding(0, (), "all ranks made the same calls in the same order")


def _named(ranks: Sequence[int]) -> str:
    return " and ".join(f"rank {rank}" for rank in ranks)

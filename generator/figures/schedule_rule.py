"""When each rank of a pipeline runs which microbatch: GPipe and 1F1B by their rules, no clock.

A forward takes one unit of time and a backward `backward_ratio` of them; sending takes none. The
orders are those of GPipe (Huang et al. 2019) and of 1F1B (PipeDream-Flush, Narayanan et al. 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from runners.traces.schema import Setting

Kind = Literal["whole", "gather", "forward", "backward", "reduce", "wait"]
RULES = ("gpipe", "one_f_one_b")


@dataclass(frozen=True)
class Action:
    """What a rank, a link or a unit does from one time to another; `name` says with what.

    In a pipeline the name is that of a microbatch, and times are those of one forward.
    """

    kind: Kind
    name: str
    start: float
    end: float


def number(setting: Setting) -> float:
    """A setting that counts or measures something, as a number."""
    assert isinstance(setting, int | float)
    return setting


def rows(
    rule: str, num_ranks: int, num_microbatches: int, backward_ratio: float
) -> list[list[Action]]:
    """The actions of each rank.

    Raises:
        ValueError: the rule is none of `RULES`.
    """
    if rule not in RULES:
        raise ValueError(f"no rule for the schedule {rule!r}; there are {', '.join(RULES)}")
    left = [list(_order(rule, num_ranks - rank, num_microbatches)) for rank in range(num_ranks)]
    done: dict[tuple[Kind, int, int], float] = {}
    found: list[list[Action]] = [[] for _ in range(num_ranks)]
    while any(left):
        for rank, order in enumerate(left):
            while order and (needed := _needs(*order[0], rank, num_ranks)) in (None, *done):
                kind, microbatch = order.pop(0)
                free = found[rank][-1].end if found[rank] else 0.0
                start = max(free, done[needed] if needed else 0.0)
                end = start + (1.0 if kind == "forward" else backward_ratio)
                done[kind, microbatch, rank] = end
                found[rank].append(Action(kind, str(microbatch), start, end))
    return found


def idle_share(actions: Sequence[Sequence[Action]]) -> float:
    """The part of all ranks' time, up to the last action, in which a rank does nothing."""
    end = max(one.end for row in actions for one in row)
    busy = sum(one.end - one.start for row in actions for one in row)
    return 1 - busy / (end * len(actions))


def in_flight(actions: Sequence[Action]) -> list[tuple[float, int]]:
    """How many microbatches a rank holds activations of from each time on."""
    changes = [(one.start, 1) if one.kind == "forward" else (one.end, -1) for one in actions]
    times = [time for time, _ in sorted(changes)]
    return list(zip(times, accumulate(change for _, change in sorted(changes)), strict=True))


def _order(rule: str, num_behind: int, num: int) -> Iterator[tuple[Kind, int]]:
    """What a rank does, in its order; so many ranks, with itself, go from it to the last."""
    ahead = num if rule == "gpipe" else min(num, num_behind)  # forwards before the first backward
    for turn in range(num + ahead - 1):
        if turn < num:
            yield "forward", turn
        if turn >= ahead - 1:
            yield "backward", turn - ahead + 1


def _needs(kind: Kind, microbatch: int, rank: int, num_ranks: int) -> tuple[Kind, int, int] | None:
    """What must be done on a neighbour, or here, before this can start."""
    if kind == "forward":
        return ("forward", microbatch, rank - 1) if rank else None
    if rank == num_ranks - 1:
        return "forward", microbatch, rank
    return "backward", microbatch, rank + 1

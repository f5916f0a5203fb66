"""When each rank of a pipeline runs which microbatch: GPipe and 1F1B by their rules, no clock.

A forward takes one unit of time and a backward `backward_ratio` of them; sending takes none. The
orders are those of GPipe (Huang et al. 2019) and of 1F1B (PipeDream-Flush, Narayanan et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["forward", "backward"]
RULES = ("gpipe", "one_f_one_b")


@dataclass(frozen=True)
class Action:
    """A forward or a backward of one microbatch on one rank, in the time of one forward."""

    kind: Kind
    microbatch: int
    start: float
    end: float


def rows(
    rule: str, num_ranks: int, num_microbatches: int, backward_ratio: float
) -> list[list[Action]]:
    """The actions of each rank.

    Raises:
        ValueError: the rule is none of `RULES`.
    """
    if rule not in RULES:
        raise ValueError(f"no rule for the schedule {rule!r}; there are {', '.join(RULES)}")
    left = [_order(rule, rank, num_ranks, num_microbatches) for rank in range(num_ranks)]
    done: dict[tuple[Kind, int, int], float] = {}
    found: list[list[Action]] = [[] for _ in range(num_ranks)]
    free = [0.0] * num_ranks
    while any(left):
        rank = next(
            rank
            for rank, order in enumerate(left)
            if order and done.keys() >= set(_before(*order[0], rank, num_ranks))
        )
        kind, microbatch = left[rank].pop(0)
        needed = _before(kind, microbatch, rank, num_ranks)
        start = max([free[rank], *(done[one] for one in needed)])
        free[rank] = start + (1.0 if kind == "forward" else backward_ratio)
        done[kind, microbatch, rank] = free[rank]
        found[rank].append(Action(kind, microbatch, start, free[rank]))
    return found


def idle_share(actions: Sequence[Sequence[Action]]) -> float:
    """The part of all ranks' time, up to the last action, in which a rank does nothing."""
    end = max(one.end for row in actions for one in row)
    busy = sum(one.end - one.start for row in actions for one in row)
    return 1 - busy / (end * len(actions))


def _order(rule: str, rank: int, num_ranks: int, num: int) -> list[tuple[Kind, int]]:
    """What a rank does, in its order."""
    forwards: list[tuple[Kind, int]] = [("forward", n) for n in range(num)]
    backwards: list[tuple[Kind, int]] = [("backward", n) for n in range(num)]
    if rule == "gpipe":
        return forwards + backwards
    warm = min(num, num_ranks - rank)  # forwards before the first backward
    order = forwards[:warm]
    for n in range(num):
        order.append(backwards[n])
        order += forwards[warm + n : warm + n + 1]
    return order


def _before(kind: Kind, microbatch: int, rank: int, num_ranks: int) -> list[tuple[Kind, int, int]]:
    """What must be done on a neighbour, or here, before this can start."""
    if kind == "forward":
        return [("forward", microbatch, rank - 1)] if rank else []
    if rank == num_ranks - 1:
        return [("forward", microbatch, rank)]
    return [("backward", microbatch, rank + 1)]

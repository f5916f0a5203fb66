"""What a rank of FSDP does in a step, unit by unit, and what it holds after each event: no clock.

Each event takes one unit of time. The order is that of `fully_shard`: a unit is gathered before it
computes, in backward while the unit behind it still computes, and its gradient is reduced while the
next one is computed. The last unit belongs to the root, which stays whole from forward on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from generator.figures.schedule_rule import Action, Kind

NUM_MOMENTS = 2  # of Adam, for each parameter


class Step(NamedTuple):
    """A step with Adam, and its events.

    Attributes:
        rows: the actions of each unit, the root's last.
        held: bytes of each part of what is held, from shards to what is whole, in each event.
    """

    rows: list[list[Action]]
    held: list[dict[str, float]]

    @property
    def peak_bytes(self) -> float:
        """The most bytes held in an event."""
        return max(sum(one.values()) for one in self.held)


def step(sizes: Sequence[int], num_ranks: int, *, frees: bool) -> Step:
    """The step.

    Args:
        sizes: bytes of the parameters of each unit, the root's last.
        num_ranks: over which every unit is sharded.
        frees: whether units but the root are freed after forward, and gathered again.
    """
    model, rows = sum(sizes) / num_ranks, [list[Action]() for _ in sizes]
    held: list[dict[str, float]] = []
    whole: dict[int, int] = {}  # since when a unit is whole
    gradients: set[int] = set()  # of which units they are whole
    reduced_bytes = 0  # of gradients that are shards again
    for kind, unit, sent in _events(len(sizes) - 1, frees=frees):
        now = len(held)
        if kind == "gather":
            whole[unit] = now
        elif kind == "backward":
            gradients.add(unit)
        elif kind in ("reduce", "whole"):
            rows[unit].insert(0, Action("whole", "", whole.pop(unit), now))
        if kind == "whole":
            continue
        if kind == "reduce":
            gradients.remove(unit)
            reduced_bytes += sizes[unit]
        rows[unit].append(Action(kind, "", now, now + 1))
        held.append(
            {
                "optimizer": NUM_MOMENTS * model,
                "parameters": model,
                "gradients": reduced_bytes / num_ranks,
                "whole_parameters": sum(sizes[one] for one in whole),
                "whole_gradients": sum(sizes[one] for one in gradients),
                "copies": 0 if sent is None else sizes[sent],
            }
        )
    return Step(rows, held)


def _events(root: int, *, frees: bool) -> Iterator[tuple[Kind, int, int | None]]:
    """Each event, its unit, and the unit in the buffer to send; `whole` ends, and takes no time.

    What forward gathers stays in its buffer as well, until the next unit is gathered; in backward
    it is gathered into its place at once. A gradient is copied to be reduced, and the copy stays
    until the next one is.
    """
    yield "gather", root, root
    for unit in range(root):
        yield "gather", unit, unit
        yield "forward", unit, unit
        if frees:
            yield "whole", unit, unit
    yield "forward", root, root - 1
    for unit in range(root, -1, -1):
        sent = unit + 1 if unit + 1 < root else None
        if frees and unit:
            yield "gather", unit - 1, sent
        yield "backward", unit, sent
        if unit != root:
            yield "reduce", unit, unit
    yield "reduce", root, root

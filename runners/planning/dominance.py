"""Committed plans weighed by the law of time: which layout another one dominates. No torch.

In: the grid of a model, and the rates of a device and its links. Out: for each row what a reader
compares, and the rows that are better in something and worse in nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from runners.planning.committed import answer_of
from runners.planning.law_of_time import Cluster
from runners.planning.table import needs
from runners.traces.plan_grid import Grid, GridRow, named_rows

NEARLY = 0.01  # layouts that differ by a smaller share are equal


class Weighed(NamedTuple):
    """What a layout costs; of each, less is better.

    Attributes:
        needed: bytes of memory with which every rank fits.
        within, between: bytes that a device sends to its node, and a node to other nodes.
        at_least, at_most: the bounds of a step, in seconds.
    """

    needed: float
    within: float
    between: float
    at_least: float
    at_most: float

    def dominates(self, other: Weighed) -> bool:
        """Whether it costs no more in anything, and less in something."""
        pairs = list(zip(self, other, strict=True))
        return all(mine <= its for mine, its in pairs) and any(
            mine < (1 - NEARLY) * its for mine, its in pairs
        )


def weighed(row: GridRow, grid: Grid, node: Cluster) -> Weighed:
    """A row, on as many devices as it has.

    Args:
        row: of the grid.
        grid: the committed plans of a model.
        node: a whole node of the cluster, with its links to others.
    """
    answer = answer_of(row, grid)
    law = answer.bounds(node.of(row.state.devices))
    within, between = law.within * node.within, law.between * node.between
    return Weighed(needs(answer), within, between, law.at_least, law.at_most)


def rivals(name: str, grid: Grid) -> dict[str, GridRow]:
    """Rows by the names of their runs that do the same training on as many devices.

    They differ in their strategy, in what they recompute, and in the size of a microbatch.
    """
    by_name, free = named_rows(grid), {"checkpointing": "", "microbatch": 0}
    mine = by_name[name]
    same = mine.state.model_copy(update=free)
    return {
        other: one
        for other, one in by_name.items()
        if one.state.model_copy(update=free) == same and one.global_batch == mine.global_batch
    }

"""Weights that are tied though they are two parameters: an embedding and a head on two stages.

In: layouts. Out: a `Tie` for each module, or for all stages of a pipeline, where exactly one pair
of matrices starts with equal values: more of them are copies, as those of a stack of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from runners.verify.sums import are_apart
from runners.verify.layout import Layout
from runners.verify.roots import digest


@dataclass
class Tie:
    """Two parameters, and whether they stay equal.

    Attributes:
        layouts: that hold them.
        names: in these layouts.
        is_kept: whether they are equal in all updates.
    """

    layouts: tuple[Layout, Layout]
    names: tuple[str, str]
    is_kept: bool

    def other(self, key: str, name: str) -> tuple[Layout, str] | None:
        """What a parameter is tied to."""
        ends = list(zip(self.layouts, self.names, strict=True))
        for (layout, own), partner in zip(ends, ends[::-1], strict=True):
            if layout.key == key and own == name:
                return partner
        return None


def ties(layouts: Sequence[Layout]) -> Iterator[Tie]:
    """All ties."""
    known = [one for one in layouts if one.num_updates]
    stages = [one for one in known if one.first.stage is not None]
    for scope in ([one] for one in known if one.first.stage is None):
        yield from _of(scope)
    yield from _of(stages)


def _of(scope: Sequence[Layout]) -> Iterator[Tie]:
    same: dict[str, list[tuple[Layout, str]]] = {}
    for layout in scope:
        for name, one in _matrices(layout, 0):
            same.setdefault(digest(one), []).append((layout, name))
    groups = [ends for ends in same.values() if len(ends) > 1]
    if len(groups) == 1 and len(groups[0]) == 2:
        (first, a), (second, b) = groups[0]
        numbers = range(1, min(first.num_updates, second.num_updates))
        pairs = [(dict(_matrices(first, n)), dict(_matrices(second, n))) for n in numbers]
        is_kept = not any(are_apart(one.get(a), other.get(b)) for one, other in pairs)
        yield Tie((first, second), (a, b), is_kept)


def _matrices(layout: Layout, number: int) -> Iterator[tuple[str, Tensor]]:
    whole = layout.whole(number, layout.view, "parameters")
    for name, one in whole.items():
        if one is not None and one.dim() > 1 and bool((one != one.flatten()[0]).any()):
            yield name, one

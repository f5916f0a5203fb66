"""Weights that are tied though they are two parameters: an embedding and a head on two stages.

In: layouts. Out: a `Tie` for each module, or for all stages of a pipeline, where exactly one pair
of matrices starts with equal values: more of them are copies, as those of a stack of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from runners.verify.layout import Layout
from runners.verify.roots import digest
from runners.verify.sums import are_apart


@dataclass
class Tie:
    """Two parameters, and whether they stay equal in all updates."""

    layouts: tuple[Layout, Layout]
    names: tuple[str, str]
    is_kept: bool

    def partners(self, key: str) -> Iterator[tuple[str, Layout, str]]:
        """Parameters of a module, each with the layout and the name of what it is tied to."""
        for end in (0, 1):
            if self.layouts[end].key == key:
                yield self.names[end], self.layouts[1 - end], self.names[1 - end]


def ties(layouts: Sequence[Layout]) -> Iterator[Tie]:
    """All ties."""
    known = [one for one in layouts if one.num_updates]
    stages = [one for one in known if one.first.stage is not None]
    for scope in [*([one] for one in known if one.first.stage is None), stages]:
        same: dict[str, list[tuple[Layout, str]]] = {}
        for layout in scope:
            for name, one in _matrices(layout, 0).items():
                same.setdefault(digest(one), []).append((layout, name))
        groups = [ends for ends in same.values() if len(ends) > 1]
        if len(groups) == 1 and len(groups[0]) == 2:
            (first, a), (second, b) = groups[0]
            numbers = range(1, min(first.num_updates, second.num_updates))
            held = [(_matrices(first, n).get(a), _matrices(second, n).get(b)) for n in numbers]
            yield Tie((first, second), (a, b), not any(are_apart(*one) for one in held))


def _matrices(layout: Layout, number: int) -> dict[str, Tensor]:
    whole = layout.whole(number, layout.view, "parameters")
    return {
        name: one for name, one in whole.items()
        if one is not None and one.dim() > 1 and bool((one != one.flatten()[0]).any())
    }  # fmt: skip

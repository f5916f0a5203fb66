"""What decides an item's key: the claims and expressions behind each of its parts.

In: an item. Out: its parts, each with the claims and expressions that decide it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from generator.content import prose
from generator.content.quiz import (
    Choice,
    Complete,
    FaultyLine,
    Item,
    Match,
    Number,
    Order,
    Predict,
    Several,
)
from generator.content.yaml_source import Path
from generator.items.keys import asked_for


class Part(NamedTuple):
    """A part of an item that can be right or wrong, and what decides it.

    Attributes:
        path: where it stands, from the item.
        claims: the claims whose verdicts decide it.
        expressions: the expressions whose values decide it.
    """

    path: Path
    claims: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether anything decides it."""
        return bool(self.claims or self.expressions)


def parts(item: Item) -> Iterator[Part]:
    """The parts of an item, in the order written, each with what decides it."""
    return _BY_KIND[item.kind](item)


def _of_options(item: Choice | Several) -> Iterator[Part]:
    for place, option in enumerate(item.options):
        gives = (option.slip.gives,) if option.slip else ()
        yield Part(("options", place), option.deciders, gives)


def _of_pairs(item: Match) -> Iterator[Part]:
    for place, pair in enumerate(item.pairs):
        printed = tuple(one.text for one in prose.expressions(pair.right))
        yield Part(("pairs", place), (pair.claim,) if pair.claim else (), printed)


def _of_pieces(item: Order) -> Iterator[Part]:
    for place, piece in enumerate(item.pieces):
        recorded = f"{item.run}: {piece.recorded}" if item.run and piece.recorded else None
        rule = recorded or piece.by
        yield Part(("pieces", place), (), (rule,) if rule else ())


def _of_lines(item: FaultyLine) -> Iterator[Part]:
    both = tuple(f"{one.path} {one.object or ''}" for one in (item.wrong, item.right))
    for place in range(len(item.lines)):
        yield Part(("lines", place), (), both)


def _of_value(item: Number | Predict | Complete) -> Iterator[Part]:
    path, expression = asked_for(item)
    yield Part(path, (), (expression,))
    for place, slip in enumerate(item.slips):
        yield Part(("slips", place), (), (slip.gives,))


_BY_KIND: dict[str, Callable[[Any], Iterator[Part]]] = {
    "choice": _of_options,
    "several": _of_options,
    "match": _of_pairs,
    "order": _of_pieces,
    "faulty_line": _of_lines,
    "number": _of_value,
    "predict": _of_value,
    "complete": _of_value,
}

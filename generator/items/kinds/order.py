"""Pieces to put in order: by a value each, or as a run recorded them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from generator.content.errors import nearest
from generator.content.quiz import Order
from generator.evidence.folio import Folio
from generator.evidence.value import numeric
from generator.items.answers import Answer
from generator.items.kinds.kind import OPEN, Form, ItemError, Key, Kind, unopened


class Pieces(Kind[Order]):
    """The order follows from the values, or from the stages or steps of one run."""

    is_ordered = True
    places = "pieces"

    @cached_property
    def key(self) -> Key:
        """The positions in the right order."""
        return self._as_recorded(self.item.run) if self.item.run else self._by_value()

    def _by_value(self) -> Key:
        found = [self.evidence.one(piece.by) if piece.by else None for piece in self.item.pieces]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            return OPEN
        numbers = [numeric(value) for value in values]
        places = range(len(numbers))
        order = sorted(places, key=numbers.__getitem__, reverse=self.item.descending)
        for before, after in pairwise(order):
            if numbers[before] == numbers[after]:
                if not self.on_reference(values[before], values[after]):
                    return OPEN
                both = " and ".join(repr(self.item.pieces[one].text) for one in (before, after))
                raise ItemError(("pieces", after, "by"), f"{both} have the same value; no order")
        return Key(right=tuple(order))

    def _as_recorded(self, path: str) -> Key:
        run = self.evidence.book.run(path)
        if run is None or run.status == "skipped" or run.is_surprise:
            return OPEN
        names = [piece.recorded for piece in self.item.pieces]
        recorded = [stage.name for stage in run.stages]
        if not set(names) & set(recorded):
            recorded = [step.name for step in run.prediction]
        for place, name in enumerate(names):
            if name not in recorded or names.index(name) != place:
                if not self.evidence.book.is_reference:
                    return OPEN
                said = f"{path} recorded no stage or step {name!r}{nearest(str(name), recorded)}"
                if name in recorded:
                    said = f"{name!r} stands above already"
                raise ItemError(("pieces", place, "recorded"), said)
        places = [recorded.index(str(name)) for name in names]
        return Key(right=tuple(sorted(range(len(places)), key=places.__getitem__)))

    def answers(self, folio: Folio) -> tuple[Answer, ...]:
        """The pieces in the right order, each with its value."""
        order = range(self.num_places) if self.key.is_open else self.key.right
        return tuple(self._explained(place, folio) for place in order)

    def _explained(self, place: int, folio: Folio) -> Answer:
        piece = self.item.pieces[place]
        beside = folio.cell(piece.by) if piece.by and self.item.run is None else None
        text, why = folio.line(piece.text), folio.line(piece.why)
        return Answer(text, why, "right", position=place, beside=beside)

    def form(self, folio: Folio, explained: tuple[Answer, ...]) -> Form:
        """The pieces, never in their right order from the start, between the words for the ends."""
        form = super().form(folio, explained)
        if self.item.ends is None:
            return form
        first, last = (unopened(folio.line(one)) for one in self.item.ends)
        return replace(form, places=(first, last))

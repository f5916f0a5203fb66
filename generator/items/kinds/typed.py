"""Numbers to type: asked for, predicted before they are revealed, or missing in a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from markupsafe import Markup

from generator.content.quiz import Complete, Number, Predict
from generator.content.yaml_source import Path
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.value import Value, numeric
from generator.items.answers import Answer, against, slipped
from generator.items.kinds.kind import (
    OPEN,
    Asked,
    Ends,
    Form,
    Found,
    Key,
    Kind,
    unopened,
    whole,
)
from generator.items.typed_number import in_unit, reach, slack, unit_of

TypedT = TypeVar("TypedT", bound=Number | Predict | Complete)


class TypedNumber(Kind[TypedT]):
    """A value, how far off an answer may be, and what each named mistake would give."""

    is_words = False  # whether the answer may be a word or a shape

    @property
    def place(self) -> Path:
        """Where the expression stands that is asked for."""
        return ("answer",)

    @property
    def covered(self) -> str:
        """The expression, and never its value."""
        return "".join(self.item.answer.split())

    @cached_property
    def key(self) -> Key:
        """The value, and the slips that can be told from it and from each other."""
        value = self.evidence.one(self.item.answer)
        if value is None:
            return OPEN
        known = [value]
        slips: list[Value | None] = []
        for slip in self.item.slips:
            gives = self.evidence.one(slip.gives)
            if gives and not any(self._is_same(gives, one) for one in known):
                known.append(gives)
                slips.append(gives)
            else:
                slips.append(None)
        return Key(value=value, slips=tuple(slips))

    def _is_same(self, one: Value, other: Value) -> bool:
        """Whether two values cannot be told apart within the tolerance around the second."""
        if isinstance(one.number, str) or isinstance(other.number, str):
            return str(one) == str(other)
        return abs(one.number - other.number) <= slack(self.item.tolerance, other)

    def unclear(self) -> Iterator[Found]:
        """An answer that is no number, and slips that are none."""
        answer = self.key.value
        if answer is None:
            return
        if isinstance(answer.number, str) and not self.is_words:
            yield self.place, f"the answer is {str(answer)!r}, not a number"
            return
        yield from self._unsound(answer)
        yield from self._unlike(answer)

    def _unsound(self, answer: Value) -> Iterator[Found]:
        """What is wrong with a question of this kind."""
        return iter(())

    def _unlike(self, answer: Value) -> Iterator[Found]:
        """Each slip stands for one mistake: it is not the answer, and no other slip."""
        above = [("the answer", answer)]
        for number, slip in enumerate(self.item.slips):
            value, path = self.evidence.one(slip.gives), ("slips", number, "gives")
            if value is None:
                continue
            if not is_alike(value, answer):
                yield path, f"the slip is in {value.unit}, the answer in {answer.unit}"
                continue
            for name, other in above:
                if self._is_same(value, other) and self.on_reference(value, other):
                    said = f"is {value}, which is {name} ({other}) within the tolerance"
                    yield path, f"the slip {said}; a reader's mistake could not be told"
            above.append((f"slip {number + 1}", value))

    def answers(self, folio: Folio) -> tuple[Answer, ...]:
        """The answer, and then the slips."""
        words, value = folio.ui["item"], self.key.value
        why = folio.line(self.item.why) if self.item.why else Markup()
        if value is None:
            return (Answer(Markup(), why, "open", words["open"]),)
        within = reach(value, self.item.tolerance)
        slips = (
            Answer(
                folio.show(gives), slipped(slip, folio), "wrong", words["slip_is"], place,
                against(slip.misconception, folio), reach=reach(gives, self.item.tolerance),
            )
            for place, slip in enumerate(self.item.slips)
            if (gives := self.key.slips[place]) is not None
        )  # fmt: skip
        return (Answer(folio.show(value), why, "right", words["answer_is"], reach=within), *slips)

    def form(self, folio: Folio, explained: tuple[Answer, ...]) -> Form:
        """A field, in the unit that the answer prints in."""
        value = self.key.value
        if value is None:
            return Form()
        return Form(unit=unit_of(value), is_number=not isinstance(value.number, str))


class Prediction(TypedNumber[Predict]):
    """A number to commit to, on a slider or in a field; a guess within `close` was close."""

    is_graded = False

    @cached_property
    def key(self) -> Key:
        """As of a number, with the ends of the slider, where the answer lies on it."""
        key = super().key
        low, high = self.evidence.one(self.item.low), self.evidence.one(self.item.high)
        if key.value is None or low is None or high is None:
            return key
        is_between = numeric(low) < numeric(key.value) < numeric(high)
        return replace(key, ends=(low, high)) if is_between else key

    def _unsound(self, answer: Value) -> Iterator[Found]:
        """A slider without the answer on it."""
        low, high = self.evidence.one(self.item.low), self.evidence.one(self.item.high)
        for name, end in (("low", low), ("high", high)):
            if end is None or isinstance(end.number, str) or not is_alike(end, answer):
                yield (name,), f"{name} is a number in the unit of the answer ({answer.unit})"
                return
        assert low is not None
        assert high is not None
        if not self.on_reference(low, answer, high):
            return
        if not numeric(low) < numeric(answer) < numeric(high):
            yield ("low",), f"the answer does not lie between {low} and {high}"
        if self.item.logarithmic and numeric(low) <= 0:
            yield ("low",), f"low is {low}; a logarithmic slider starts above nothing"

    def form(self, folio: Folio, explained: tuple[Answer, ...]) -> Form:
        """With the slider."""
        form = super().form(folio, explained)
        if self.key.ends is None or form.unit is None:
            return form
        low, high = self.key.ends
        said = in_unit(low, form.unit), in_unit(high, form.unit)
        opened = folio.show(low), folio.show(high)
        ends = Ends(numeric(low), numeric(high), *said, self.item.logarithmic, opened)
        return replace(form, ends=ends)


class MissingCell(TypedNumber[Complete]):
    """The cell of a table that is missing: a number, or a shape such as 50 × 20."""

    is_words = True

    @property
    def place(self) -> Path:
        """The cell of the blank."""
        row, column = self._blank
        return "rows", row, "cells", column

    @property
    def _blank(self) -> tuple[int, int]:
        return self.item.blank.row - 1, self.item.blank.column - 1

    def _unsound(self, answer: Value) -> Iterator[Found]:
        """A measured value of which nobody says how near is right."""
        if self.item.tolerance is None and isinstance(answer.number, float):
            yield ("blank",), "the missing value is measured; say in tolerance: how near is right"

    def form(self, folio: Folio, explained: tuple[Answer, ...]) -> Form:
        """The table with a field in the blank, and the whole table."""
        asked = tuple(
            (
                unopened(folio.line(row.title)),
                tuple(
                    Asked(Markup(), 0)
                    if (down, across) == self._blank
                    else Asked(unopened(folio.cell(cell)))
                    for across, cell in enumerate(row.cells)
                ),
            )
            for down, row in enumerate(self.item.rows)
        )
        return replace(
            super().form(folio, explained), table=asked, whole=whole(self.item.rows, folio),
            columns=tuple(map(folio.line, self.item.columns)),
        )  # fmt: skip


def is_alike(one: Value, other: Value) -> bool:
    """Whether two values are numbers that can be compared, or both are words."""
    if "text" in (one.unit.style, other.unit.style):
        return one.unit == other.unit
    try:
        units.of_sum(one.unit, other.unit)
    except units.UnitError:
        return False
    return True

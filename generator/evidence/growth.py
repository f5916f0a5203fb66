"""Growth: expressions over each of several runs → points with provenance, or located mistakes.

A `Growth` and the evidence in; for each run of each series its place, what was measured and what
the formula says there. A run that this machine lacks is left out; what an author got
wrong is reported where it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from generator.content.exhibit import Growth
from generator.evidence import quantifier, units
from generator.evidence.difference import in_one_form
from generator.evidence.value import AbsentError, ExpressionError, Value, numeric

if TYPE_CHECKING:
    from generator.content.book import Book
    from generator.evidence.evaluation import Evidence
    from generator.evidence.paths import Evaluation

FIELDS = ("x", "measured", "predicted")


@dataclass(frozen=True)
class GrowthRun:
    """One run of a series: its path, its place, what was measured, what the formula says."""

    run: str
    x: Value
    measured: Value
    predicted: Value | None


def ruled(growth: Growth, book: Book) -> Growth:
    """A growth with its law's rule in the place of the law."""
    if growth.law is None:
        return growth
    claim = book.claims[growth.law]
    rule = {"law": None, "measured": claim.observed, "predicted": claim.predicted}
    return growth.model_copy(update=rule)


def runs_by_series(growth: Growth, evidence: Evidence) -> dict[str, list[GrowthRun]]:
    """The runs of each series that this machine has measured, by the series' label, along x."""
    growth = ruled(growth, evidence.book)
    found: dict[str, list[GrowthRun]] = {}
    for series in growth.series:
        rows = [row for run in series.runs if (row := _row(growth, run, evidence))]
        found[series.label] = sorted(rows, key=lambda row: numeric(row.x))
    return found


def _row(growth: Growth, run: str, evidence: Evidence) -> GrowthRun | None:
    assert growth.measured is not None
    x, measured = _value(growth.x, run, evidence), _value(growth.measured, run, evidence)
    if x is None or measured is None:
        return None
    predicted = _value(growth.predicted, run, evidence) if growth.predicted else None
    predicted, _ = in_one_form(predicted, measured)
    return GrowthRun(run, x, measured, predicted)


def _value(expression: str, run: str, evidence: Evidence) -> Value | None:
    try:
        found = quantifier.in_one(evidence.value(expression, {"run": run}))
    except AbsentError:
        return None
    return found if isinstance(found, Value) and not found.absent else None


def faults(evidence: Evidence, growth: Growth) -> Iterator[tuple[str, str]]:
    """What is wrong with the expressions of a growth figure: the field at fault, and the message.

    Each is reported once, for the first run that shows it.
    """
    law = evidence.book.claims.get(growth.law) if growth.law else None
    if growth.law and law is None:
        return  # reported where it is named
    if law and (law.run is None or law.other):
        yield "law", f"{law.id} is no rule over `run` alone; state it with for:"
        return
    named = {"measured": "law", "predicted": "law"} if law else {}
    growth = ruled(growth, evidence.book)
    reported: set[tuple[str, str]] = set()
    for run in (run for series in growth.series for run in series.runs):
        if evidence.book.run(run) is None:
            continue  # a run that is nowhere is reported where it is named
        for field, kind, message in _faults_of_run(growth, run, evidence):
            if (field, kind) not in reported:
                reported.add((field, kind))
                yield named.get(field, field), f"for {run}: {message}"


def _faults_of_run(growth: Growth, run: str, evidence: Evidence) -> Iterator[tuple[str, str, str]]:
    """The field at fault, what kind of fault it is, and the message."""
    sound: dict[str, Evaluation] = {}
    for field in FIELDS:
        expression = getattr(growth, field)
        if expression is None:
            continue
        found = evidence.evaluate(expression, {"run": run})
        found = replace(found, result=quantifier.in_one(found.result))
        problem = evidence.unprintable(found)
        if problem:
            yield field, "expression", problem
        elif isinstance(found.result, Value):
            sound[field] = found
            problem = _cannot_be_drawn(found.result, is_logarithmic=growth.logarithmic)
            if problem:
                yield field, "place", problem
        elif found.result is not None:
            yield field, "words", f"{expression} gives words and no value"
    yield from _unmeasured(growth, sound)
    if "measured" in sound and "predicted" in sound:
        yield from _ill_matched(sound["measured"], sound["predicted"])


def _unmeasured(growth: Growth, sound: Mapping[str, Evaluation]) -> Iterator[tuple[str, str, str]]:
    if "measured" in sound and not sound["measured"].measured:
        yield "measured", "unmeasured", f"{growth.measured} is nothing that a run measured"


def _ill_matched(measured: Evaluation, predicted: Evaluation) -> Iterator[tuple[str, str, str]]:
    """What keeps a formula from standing beside what was measured."""
    shared = sorted(set(measured.measured) & set(predicted.measured))
    if shared:
        yield "predicted", "shared", f"reads {shared[0]}, the very field that it is drawn beside"
    try:
        units.of_sum(measured.result.unit, predicted.result.unit)
    except units.UnitError as error:
        yield "predicted", "unit", str(error)


def _cannot_be_drawn(value: Value, *, is_logarithmic: bool) -> str | None:
    """Why a value has no place on the axis, or None."""
    try:
        number = numeric(value)
    except (ExpressionError, AbsentError) as error:
        return str(error)
    if is_logarithmic and number <= 0:
        return f"{value} has no place on a logarithmic axis"
    return None

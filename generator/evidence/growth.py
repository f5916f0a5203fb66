"""Growth: expressions over each of several runs → points with provenance, or located mistakes.

A `Growth` and the evidence in; for each run of each series its place, what was measured and what
the formula says there. A run that this machine lacks is left out; what an author got
wrong is reported where it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from generator.content.book import Book
from generator.content.exhibit import Growth
from generator.evidence import quantifier, units
from generator.evidence.evaluation import Evidence
from generator.evidence.law_sides import in_one_form
from generator.evidence.paths import Evaluation
from generator.evidence.value import Value, numeric

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
    x, measured = (evidence.one(one, {"run": run}) for one in (growth.x, growth.measured))
    if x is None or measured is None:
        return None
    predicted = evidence.one(growth.predicted, {"run": run}) if growth.predicted else None
    predicted, _ = in_one_form(predicted, measured)
    return GrowthRun(run, x, measured, predicted)


def faults(evidence: Evidence, growth: Growth) -> Iterator[tuple[str, str]]:
    """What is wrong with a growth figure on the first run that has any: the field, the message."""
    law = evidence.book.claims.get(growth.law) if growth.law else None
    if growth.law and law is None:
        return  # reported where it is named
    if law and law.names.keys() != {"run"}:
        yield "law", f"{law.id} is no rule over `run` alone; state it with for:"
        return
    growth = ruled(growth, evidence.book)
    runs = filter(evidence.book.run, (run for series in growth.series for run in series.runs))
    found = ((run, *fault) for run in runs for fault in _faults_of_run(growth, run, evidence))
    for run, field, message in islice(found, 1):
        yield "law" if law and field != "x" else field, f"for {run}: {message}"


def _faults_of_run(growth: Growth, run: str, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """The field at fault, and the message; what this machine lacks is left out."""
    sound: dict[str, Evaluation] = {}
    given = {field: getattr(growth, field) for field in FIELDS}
    for field, expression in ((field, one) for field, one in given.items() if one):
        found = evidence.evaluate(expression, {"run": run})
        value = quantifier.in_one(found.result)
        if not isinstance(value, Value) or isinstance(value.number, str):
            if not found.absent or found.error:
                yield field, found.error or f"{expression} is no number"
            return
        sound[field] = replace(found, result=value)
    measured, predicted = sound["measured"], sound.get("predicted")
    if not measured.measured:
        yield "measured", f"{growth.measured} is nothing that a run measured"
    if predicted and (problem := _ill_matched(measured, predicted)):
        yield "predicted", problem


def _ill_matched(measured: Evaluation, predicted: Evaluation) -> str | None:
    """What keeps a formula from standing beside what was measured, or None."""
    shared = sorted(set(measured.measured) & set(predicted.measured))
    if shared:
        return f"reads {shared[0]}, the very field that it is drawn beside"
    try:
        units.of_sum(measured.result.unit, predicted.result.unit)
    except units.UnitError as error:
        return str(error)
    return None

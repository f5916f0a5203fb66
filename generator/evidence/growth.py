"""Growth: expressions over each of several runs → points with provenance, or located mistakes.

A `Growth` and the evidence in; for each run of each series its place, what was measured and what
the formula says there. A run that this machine lacks is left out; what an author got
wrong is reported where it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    """What is wrong with the expressions of a growth figure: the field at fault, and the message.

    They are those of the first run that has any.
    """
    law = evidence.book.claims.get(growth.law) if growth.law else None
    if growth.law and law is None:
        return  # reported where it is named
    if law and law.names.keys() != {"run"}:
        yield "law", f"{law.id} is no rule over `run` alone; state it with for:"
        return
    growth = ruled(growth, evidence.book)
    for run in (run for series in growth.series for run in series.runs):
        if evidence.book.run(run) is None:
            continue  # a run that is nowhere is reported where it is named
        found = list(_faults_of_run(growth, run, evidence))
        for field, message in found:
            yield "law" if law and field != "x" else field, f"for {run}: {message}"
        if found:
            return


def _faults_of_run(growth: Growth, run: str, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """The field at fault, and the message."""
    sound: dict[str, Evaluation] = {}
    for field in FIELDS:
        expression = getattr(growth, field)
        if expression is None:
            continue
        found = evidence.evaluate(expression, {"run": run})
        found = replace(found, result=quantifier.in_one(found.result))
        problem = evidence.unprintable(found) or _cannot_be_drawn(found, growth.logarithmic)
        if problem:
            yield field, problem
        elif isinstance(found.result, Value):
            sound[field] = found
    if "measured" in sound and not sound["measured"].measured:
        yield "measured", f"{growth.measured} is nothing that a run measured"
    if "measured" in sound and "predicted" in sound:
        problem = _ill_matched(sound["measured"], sound["predicted"])
        yield from [("predicted", problem)] if problem else []


def _cannot_be_drawn(found: Evaluation, is_logarithmic: bool) -> str | None:
    """Why a result has no place on the axis, or None; what this machine lacks is left out."""
    if found.absent:
        return None
    if not isinstance(found.result, Value):
        return "gives words and no value"
    if isinstance(found.result.number, str):
        return f"{found.result.formula} is text, not a number"
    if is_logarithmic and found.result.number <= 0:
        return f"{found.result} has no place on a logarithmic axis"
    return None


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

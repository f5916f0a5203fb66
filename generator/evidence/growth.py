"""Growth: expressions over each of several runs → points with provenance, or located mistakes.

A `Growth` and the evidence in; for each run of each series its place, what was measured and what
the formula says there. A run that this machine lacks is left out; what an author got
wrong is reported where it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from generator.content.exhibit import Growth
from generator.evidence.evaluation import Evidence
from generator.evidence.value import Value, numeric

FIELDS = ("x", "measured", "predicted")


@dataclass(frozen=True)
class GrowthRun:
    """One run of a series: its path, its place, what was measured, what the formula says."""

    run: str
    x: Value
    measured: Value
    predicted: Value | None


def runs_by_series(growth: Growth, evidence: Evidence) -> dict[str, list[GrowthRun]]:
    """The runs of each series that this machine has measured, by the series' label, along x."""
    found: dict[str, list[GrowthRun]] = {}
    for series in growth.series:
        rows = [row for run in series.runs if (row := _row(growth, run, evidence))]
        found[series.label] = sorted(rows, key=lambda row: numeric(row.x))
    return found


def _row(growth: Growth, run: str, evidence: Evidence) -> GrowthRun | None:
    x, measured = (evidence.one(one, {"run": run}) for one in (growth.x, growth.measured))
    if x is None or measured is None:
        return None
    predicted = evidence.one(growth.predicted, {"run": run}) if growth.predicted else None
    return GrowthRun(run, x, measured, predicted)


def faults(evidence: Evidence, growth: Growth) -> Iterator[tuple[str, str]]:
    """What is wrong with a growth figure on the first run that has any: the field, the message."""
    for run in filter(evidence.book.run, (run for series in growth.series for run in series.runs)):
        for field, expression in ((one, getattr(growth, one)) for one in FIELDS):
            found = evidence.evaluate(expression, {"run": run}) if expression else None
            if found and not found.absent and not _is_number(found.result):
                yield field, f"for {run}: {found.error or f'{expression} is no number'}"
                return


def _is_number(thing: object) -> bool:
    return isinstance(thing, Value) and not isinstance(thing.number, str)

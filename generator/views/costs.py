"""Formula beside measurement: what was predicted, what a run measured, and how far off it was."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from generator.modes.cost import CostTable
from generator.value import ExpressionError, Value
from generator.views.folio import ABSENT, Folio


@dataclass(frozen=True)
class CostOnPage:
    """One row; `off` is the formula's distance from the measurement, as a share of that."""

    what: Markup
    run: str
    formula: Markup
    predicted: Markup
    measured: Markup
    off: Markup


def cost_rows(table: CostTable, folio: Folio) -> list[CostOnPage]:
    """The rows of a table of costs."""
    rows = []
    for one in table.rows:
        folio.run(one.run)
        predicted, measured = folio.value(one.predicted), folio.value(one.measured)
        off = relative_difference(predicted, measured)
        rows.append(
            CostOnPage(
                what=folio.line(one.what),
                run=one.run,
                formula=folio.line(one.formula),
                predicted=ABSENT if predicted is None else folio.show(predicted),
                measured=ABSENT if measured is None else folio.show(measured),
                off=ABSENT if off is None else folio.show(off),
            )
        )
    return rows


def relative_difference(predicted: Value | None, measured: Value | None) -> Value | None:
    """How far a formula lies from what was measured, signed, as a share of the measurement.

    None where this machine lacks one of the two, or where nothing was measured to be a share of.

    Raises:
        ExpressionError: the two are no numbers of one unit.
    """
    if predicted is None or measured is None:
        return None
    if isinstance(predicted.number, str) or isinstance(measured.number, str):
        raise ExpressionError("a cost is a number; words have no difference")
    difference = predicted - measured
    if measured.number == 0:
        return difference if difference.number == 0 else None
    return (difference / measured).shown(way="percent")

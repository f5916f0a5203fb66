"""Formula beside measurement: what was predicted, what a run measured, and how far off it was."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from generator.content.modes.cost import CostTable
from generator.evidence.difference import relative_difference
from generator.evidence.folio import ABSENT, Folio


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

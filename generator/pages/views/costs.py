"""Formula beside measurement: what was predicted, what a run measured, and how far off it was."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup

from generator.content.modes.cost import CostTable
from generator.evidence.difference import in_one_form, relative_difference
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.found_by import heading
from generator.evidence.law_formula import shown
from generator.evidence.law_sides import on_run
from generator.evidence.value import Value

_FORMULA = re.compile(r"`[^`]+`(?=[^`])")


@dataclass(frozen=True)
class CostTableOnPage:
    """The rows of a table, and what the column beside the formula's is called."""

    rows: list[CostOnPage]
    heading: str


@dataclass(frozen=True)
class CostOnPage:
    """One row; `off` is the formula's distance from the measurement, as a share of that.

    `bound` is the verdict on a formula that is a bound, and empty where it is a value.
    """

    what: Markup
    run: str
    formula: Markup
    predicted: Markup
    measured: Markup
    off: Markup
    bound: str


def cost_table(table: CostTable, folio: Folio) -> CostTableOnPage:
    """A table of costs; the first of several with one law explains its formula."""
    rows: list[CostOnPage] = []
    all_found: list[Value | None] = []
    told: set[str] = set()
    for one in table.rows:
        claim = folio.book.claims[one.law]
        found = on_run(claim, folio.evidence)
        folio.run(found.run)
        all_found.append(found.measured)
        folio.text.shown_claims.add(one.law)
        off = relative_difference(found.predicted, found.measured)
        values = (*in_one_form(found.predicted, found.measured), off)
        predicted, measured, off_by = (ABSENT if v is None else folio.show(v) for v in values)
        is_bound = claim.relation != "equals"
        if is_bound:
            predicted = Markup("{}{}").format(folio.ui["relations"][claim.relation], predicted)
        verdict = folio.ui["verdicts"][folio.evidence.outcome(claim.id).verdict]
        formula = one.formula or shown(claim) or ""
        explained = _FORMULA.match(formula)
        if formula in told and explained:
            formula = explained[0]
        told.add(formula)
        rows.append(
            CostOnPage(
                what=folio.line(one.what),
                run=found.run,
                formula=folio.line(formula) if formula else ABSENT,
                predicted=predicted,
                measured=measured,
                off=off_by,
                bound=folio.ui["cost"]["bound"].format(verdict=verdict) if is_bound else "",
            )
        )
    return CostTableOnPage(rows, heading(all_found, folio.ui["found_by"]))

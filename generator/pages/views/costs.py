"""Formula beside measurement: what was predicted, what a run measured, and how far off it was."""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup

from generator.content.lesson import CostTable
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.law_shown import observed_run, off_by, shown
from generator.evidence.verdicts import Outcome
from generator.pages.table import Row, label
from generator.pages.views.claims import css_of, sides_of, tolerance_of

_FORMULA = re.compile(r"`[^`]+`(?=[^`])")


def cost_table(
    written: CostTable, folio: Folio, run_link: Callable[[str], Markup]
) -> tuple[list[str], list[Row]]:
    """The titles and rows of a table of costs; the first row with a law explains its formula.

    Args:
        written: by an author.
        folio: the page.
        run_link: leads to a run.
    """
    outcomes = [folio.evidence.outcome(one.law) for one in written.rows]
    rows: list[Row] = []
    explained_before: set[str] = set()
    for one, found in zip(written.rows, outcomes, strict=True):
        run = observed_run(found.claim, folio.evidence)
        folio.run(run)
        folio.shown_claims.add(one.law)
        formula = shown(found.claim) or ""
        explained = _FORMULA.match(formula)
        if formula in explained_before and explained:
            formula = explained[0]
        explained_before.add(formula)
        what = Markup('{}<br><span class="pb-said">{}</span>').format(
            folio.line(one.what), run_link(run)
        )
        says = folio.line(formula) if formula else ABSENT
        rows.append([what, says, *sides_of(found, folio), _off_by(found, folio)])
    heads, way = folio.ui["cost"], folio.found(one.observed for one in outcomes)
    numbers = (heads["predicted"], way, heads["differs_by"])
    return ["What", "Formula", *(f"#{one}" for one in numbers)], rows


def _off_by(found: Outcome, folio: Folio) -> Markup:
    """How far a formula is off, and that it does not hold; of a bound, whether it holds."""
    verdict = Markup('<span class="pb-verdict {}">{}</span>').format(
        css_of(found), found.verdict.replace("_", " ")
    )
    if found.claim.relation != "equals":
        slack = tolerance_of(found.claim, found.observed)
        bound = f"bound, {slack} allowed" if slack else "bound"
        return Markup("{}<br>{}").format(label(bound), verdict)
    off = folio.shown(off_by(found.predicted, found.observed))
    return off if found.verdict == "holds" else off + Markup("<br>") + verdict

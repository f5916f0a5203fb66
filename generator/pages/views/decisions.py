"""A decision table: situation, what to use, why, and the run and claim that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from generator.content.modes.why import Decision
from generator.evidence.folio import Folio
from generator.pages.views.claims import VerdictRow, verdict_row


@dataclass(frozen=True)
class DecisionRow:
    """One row; `ended` says how the run did, `verdict` how its claim stands here."""

    situation: Markup
    use: Markup
    because: Markup
    run: str
    ended: str
    verdict: VerdictRow | None


def decisions(written: Sequence[Decision], folio: Folio) -> list[DecisionRow]:
    """The rows of a decision table, as this machine's runs bear them out."""
    rows = []
    for one in written:
        run = folio.run(one.run)
        rows.append(
            DecisionRow(
                situation=folio.line(one.situation),
                use=folio.line(one.use),
                because=folio.line(one.because),
                run=one.run,
                ended=folio.ui["statuses"][run.status] if run else folio.ui["figure"]["skipped"],
                verdict=verdict_row(one.claim, folio) if one.claim else None,
            )
        )
    return rows

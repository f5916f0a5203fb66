"""The claims of one page that other machines decide otherwise, or whose values differ there."""

from __future__ import annotations

from generator.evidence.folio import Folio
from generator.evidence.other_machines import differs
from generator.evidence.verdicts import Outcome
from generator.pages.shown import Shown
from generator.pages.views.claims import beside_predicted, css_of, readable, side
from generator.pages.views.proof import measured_by


def compared(folio: Folio) -> list[Shown]:
    """The claims that this page names and that come out otherwise on another machine."""
    named = [name for name in folio.book.claims if name in folio.text.claims]
    return [one for one in (_compared(name, folio) for name in named) if len(one.said) > 1]


def _compared(name: str, folio: Folio) -> Shown:
    page = folio.evidence
    here = page.outcome(name)
    others = [(one.outcomes.get(name), one.evidence) for one in folio.other_outcomes.values()]
    if page is not folio.at_hand:
        others.insert(0, (folio.outcomes[name], folio.at_hand))
    there = {
        evidence.book.machine.name: outcome
        for outcome, evidence in others
        if outcome is not None
        and outcome.machine != here.machine
        and differs(here, outcome, page.book, evidence.book)
    }
    said = [said_on(measured_by(here, folio), here, folio)] if there else []
    said += [said_on(machine, outcome, folio) for machine, outcome in there.items()]
    return Shown(id=name, says=folio.line(folio.book.claims[name].says), said=said)


def said_on(machine: str, outcome: Outcome, folio: Folio) -> Shown:
    """What a machine observed of a claim, what that is compared with, and its verdict."""
    _, observed = readable(outcome, folio)
    return Shown(
        machine=machine,
        observed=side(observed, folio, outcome.claim.id),
        beside=beside_predicted(outcome, folio),
        words=folio.ui["verdicts"][outcome.verdict],
        css=css_of(outcome),
    )

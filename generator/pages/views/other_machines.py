"""The claims of one page on every other machine that has measured them."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from generator.evidence.folio import Folio
from generator.evidence.other_machines import parts
from generator.evidence.verdicts import Outcome
from generator.pages.views.claims import css_of, side
from generator.pages.views.proof import measured_by


@dataclass(frozen=True)
class Said:
    """What one machine says of a claim."""

    machine: str
    observed: Markup
    words: str
    css: str
    why: Markup | None  # why a law does not apply there


@dataclass(frozen=True)
class ComparedClaim:
    """A claim of this page, on the machine shown and on the others."""

    id: str
    kind: str
    says: Markup
    said: tuple[Said, ...]
    differs: bool


def compared(folio: Folio) -> list[ComparedClaim]:
    """The claims that this page names, as far as another machine judged them too."""
    named = [name for name in folio.book.claims if name in folio.text.claims]
    found = (_compared(name, folio) for name in named)
    return sorted((one for one in found if len(one.said) > 1), key=lambda one: not one.differs)


def _compared(name: str, folio: Folio) -> ComparedClaim:
    here = folio.outcomes[name]
    there = {
        machine: one.outcomes[name]
        for machine, one in folio.other_outcomes.items()
        if name in one.outcomes
    }
    said = [_said(measured_by(here, folio), here, folio)] if there else []
    said += [_said(machine, outcome, folio) for machine, outcome in there.items()]
    return ComparedClaim(
        name,
        here.claim.kind,
        folio.line(here.claim.says),
        tuple(said),
        any(parts(here, outcome) for outcome in there.values()),
    )


def _said(machine: str, outcome: Outcome, folio: Folio) -> Said:
    does_not_apply = outcome.verdict == "does_not_apply"
    return Said(
        machine,
        side(outcome.observed, folio),
        folio.ui["verdicts"][outcome.verdict],
        css_of(outcome),
        folio.line(outcome.explanation) if does_not_apply else None,
    )

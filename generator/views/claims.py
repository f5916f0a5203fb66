"""Claims and sentences as pages show them: predicted, observed, verdict, how a sentence stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from generator import units
from generator.claim import Claim, Retraction
from generator.value import Value
from generator.verdicts import Outcome
from generator.views.folio import Folio

MAX_DIGITS = 12
SMALLEST_PERCENTAGE = 1e-6  # below, a percentage says less than a power of ten
RELATIONS = {
    "equals": "",
    "at_least": "≥ ",
    "at_most": "≤ ",
    "above": "> ",
    "below": "< ",
    "differs": "≠ ",
    "faster": "< ",
    "slower": "> ",
}


@dataclass(frozen=True)
class VerdictRow:
    """A claim on this machine."""

    claim: Claim
    outcome: Outcome
    says: Markup
    predicted: Markup
    observed: Markup
    words: str
    css: str
    verdict: str
    runs: tuple[str, ...]
    explanation: Markup
    tolerance: str
    domain: Markup
    formula: Markup | None
    source: str | None
    reference: OnReference | None


@dataclass(frozen=True)
class OnReference:
    """The same claim on the reference machine, where this machine has measured for itself."""

    observed: Markup
    words: str
    css: str
    differs: bool


def verdict_row(name: str, folio: Folio) -> VerdictRow:
    """One claim, judged on the runs this book shows."""
    claim, outcome = folio.book.claims[name], folio.outcomes[name]
    folio.runs.update(outcome.runs)
    relation = RELATIONS[claim.relation]
    predicted, observed = _told_apart(outcome)
    return VerdictRow(
        claim=claim,
        outcome=outcome,
        says=folio.line(claim.says),
        predicted=Markup("{}{}").format(relation, _side(predicted, folio)),
        observed=_side(observed, folio),
        words=folio.ui["verdicts"][outcome.verdict],
        css=_css(outcome),
        verdict=outcome.verdict,
        runs=outcome.runs,
        explanation=folio.line(outcome.explanation),
        tolerance=_tolerance(claim),
        domain=_domain(claim, folio),
        formula=folio.line(claim.formula) if claim.formula else None,
        source=claim.source,
        reference=_on_reference(name, outcome, folio),
    )


def _on_reference(name: str, here: Outcome, folio: Folio) -> OnReference | None:
    there = folio.reference_outcomes.get(name)
    if there is None:
        return None
    return OnReference(
        observed=_side(there.observed, folio),
        words=folio.ui["verdicts"][there.verdict],
        css=_css(there),
        differs=there.verdict != here.verdict,
    )


def _css(outcome: Outcome) -> str:
    return f"pb-{outcome.verdict.replace('_', '-')}"


def verdict_rows(names: Sequence[str], folio: Folio) -> list[VerdictRow]:
    """Several claims, in the order in which they are named."""
    return [verdict_row(name, folio) for name in names]


def _told_apart(outcome: Outcome) -> tuple[Value | None, Value | None]:
    """Both sides, with digits enough to differ where the verdict says that they do."""
    predicted, observed = outcome.predicted, outcome.observed
    if predicted is None or observed is None or predicted.number == observed.number:
        return predicted, observed
    if outcome.claim.relation == "equals" and outcome.verdict == "holds":
        return predicted, observed
    for digits in range(5, MAX_DIGITS + 1):
        if str(predicted) != str(observed) or isinstance(predicted.number, str):
            break
        predicted, observed = predicted.shown(digits=digits), observed.shown(digits=digits)
    return predicted, observed


def changed(folio: Folio) -> list[VerdictRow] | None:
    """Claims with another verdict than on the reference machine; None where there is but one."""
    if not folio.reference_outcomes:
        return None
    return [
        verdict_row(name, folio)
        for name, there in folio.reference_outcomes.items()
        if there.verdict != folio.outcomes[name].verdict
    ]


def _side(value: Value | None, folio: Folio) -> Markup:
    if value is None:
        return Markup("–")
    if isinstance(value.number, str):
        value = replace(value, number=value.number.replace("_", " "))
    return folio.show(value)


def _tolerance(claim: Claim) -> str:
    if claim.tolerance is None:
        return ""
    written = units.Form(way="written")
    relative = claim.tolerance.relative
    if relative is None:
        return units.printed(claim.tolerance.absolute or 0, units.PLAIN, written)
    if relative >= SMALLEST_PERCENTAGE:
        return f"{relative * 100:g}%"
    return f"{units.printed(relative, units.PLAIN, written)} of predicted"


def _domain(claim: Claim, folio: Folio) -> Markup:
    if claim.domain is None:
        return Markup("")
    parts = [*(claim.domain.device or []), *(claim.domain.backend or [])]
    because = folio.line(claim.domain.because) if claim.domain.because else Markup("")
    return Markup("{} {}").format(escape(", ".join(parts)), because)


@dataclass(frozen=True)
class Standing:
    """How a sentence stands after its run; `word` is a key of the interface's words."""

    word: str
    css: str


def standing(sentence: Retraction, outcome: Outcome) -> Standing:
    """Whether a run retracts a sentence, confirms it, or leaves it open on this machine."""
    if outcome.verdict in ("does_not_apply", "no_evidence", "too_few_samples"):
        return Standing("untested", "pb-does-not-apply")
    if sentence.confirmed_if is not None:
        if outcome.verdict == sentence.confirmed_if:
            return Standing("confirmed", "pb-holds")
        return Standing("retracted", "pb-does-not-hold")
    if outcome.verdict == "holds":
        return Standing("retracted", "pb-does-not-hold")
    return Standing("untested", "pb-differs")

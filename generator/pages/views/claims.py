"""Claims and sentences as pages show them: predicted, observed, verdict, how a sentence stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup, escape

from generator.checks import statement_checks
from generator.content.claim import Claim, Domain, Retraction
from generator.evidence import law_formula, regime, units
from generator.evidence.folio import Folio
from generator.evidence.law_sides import in_one_form
from generator.evidence.value import Value
from generator.evidence.verdicts import Outcome
from generator.pages.shown import Shown

MAX_DIGITS = 12
_TOLD = Markup("")  # in place of a number that stands in the same section already
CONTRARY = ("does_not_hold", "not_distinguishable")  # what a section says outside its fold
SMALLEST_PERCENTAGE = 1e-6  # below, a percentage says less than a power of ten


def verdict_row(name: str, folio: Folio) -> Shown:
    """One claim, judged on the runs this book shows."""
    claim, outcome = folio.book.claims[name], folio.outcome(name)
    folio.runs.update(outcome.runs)
    folio.text.claims.add(name)
    is_told = name in folio.text.shown_claims
    predicted, observed = readable(outcome, folio)
    return Shown(
        claim=claim,
        says=folio.line(claim.says),
        predicted=predicted_of(outcome, predicted, folio) if not is_told else _TOLD,
        observed=observed_of(outcome, observed, folio) if not is_told else _TOLD,
        words=folio.ui["verdicts"][outcome.verdict],
        css=css_of(outcome),
        runs=outcome.runs,
        formula=formula_of(claim, folio),
        is_told=is_told,
        is_contrary=not is_told and outcome.verdict in CONTRARY,
        regime=regime_of(claim, outcome, folio) if _is_of_a_machine(folio, claim) else Markup(""),
    )


def regime_of(claim: Claim, outcome: Outcome, folio: Folio) -> Markup:
    """Under which conditions the runs of a claim were measured."""
    runs = {name: run for name in outcome.runs if (run := folio.book.run(name))}
    text = regime.line(claim, runs, folio.strategy)
    return folio.line(text) if text else Markup("")


def _is_of_a_machine(folio: Folio, claim: Claim) -> bool:
    """Whether a claim reads times or memory, which batch, device and ranks decide."""
    read = [field for side in folio.evidence.sides(claim) for field in side.measured]
    return any(".timing." in field or ".memory." in field for field in read)


def predicted_of(outcome: Outcome, predicted: Value | None, folio: Folio) -> Markup:
    """What was predicted, behind its relation; digests are equal or differ in words."""
    is_bare = predicted is None or _is_of_digests(outcome)
    relation = "" if is_bare else folio.ui["relations"][outcome.claim.relation]
    return Markup("{}{}").format(relation, side(predicted, folio, outcome.claim.id))


def observed_of(outcome: Outcome, observed: Value | None, folio: Folio) -> Markup:
    """What was observed; of a rule with a quantifier also for how many ranks, steps or values."""
    shown = side(observed, folio, outcome.claim.id)
    scope = outcome.scope
    if scope is None or scope.num.number == 1 or (not scope.is_alike and scope.one == "value"):
        return shown
    num = folio.show(scope.num, outcome.claim.id)
    among = "for each of" if scope.is_alike else "over"
    return Markup(f'{{}} <span class="pb-said">{among} {{}} {{}}</span>').format(
        shown, num, scope.several
    )


def formula_of(claim: Claim, folio: Folio) -> Markup | None:
    """A claim's rule: as its author wrote it, or else as its expressions print."""
    formula = law_formula.shown(claim)
    return folio.line(formula) if formula else None


def css_of(outcome: Outcome) -> str:
    """The class of a verdict, which colours it."""
    return f"pb-{outcome.verdict.replace('_', '-')}"


def verdict_rows(names: Sequence[str], folio: Folio) -> list[Shown]:
    """Several claims, in the order in which they are named, as the table that ends a section."""
    rows = [verdict_row(name, folio) for name in names]
    folio.text.shown_claims.clear()
    return rows


def _is_of_digests(outcome: Outcome) -> bool:
    return any(one is not None and one.is_digest for one in (outcome.predicted, outcome.observed))


def readable(outcome: Outcome, folio: Folio) -> tuple[Value | None, Value | None]:
    """Both sides as a person reads them: of digests, whether they are equal to the bit."""
    predicted, observed = told_apart(outcome)
    if predicted is None or observed is None or not _is_of_digests(outcome):
        return predicted, observed
    words = folio.ui["digests"]
    is_equal = outcome.claim.relation == "equals"
    came_out_equal = is_equal == (outcome.verdict == "holds")
    return tuple(  # type: ignore[return-value]
        replace(value, words=words["equal" if equal else "different"])
        for value, equal in ((predicted, is_equal), (observed, came_out_equal))
    )


def told_apart(outcome: Outcome) -> tuple[Value | None, Value | None]:
    """Both sides, in one form, with digits enough to differ where the verdict says they do."""
    predicted, observed = in_one_form(outcome.predicted, outcome.observed)
    if predicted is None or observed is None or predicted.number == observed.number:
        return predicted, observed
    if outcome.claim.relation == "equals" and outcome.verdict == "holds":
        return predicted, observed
    for digits in range(5, MAX_DIGITS + 1):
        if str(predicted) != str(observed) or isinstance(predicted.number, str):
            break
        predicted, observed = predicted.shown(digits=digits), observed.shown(digits=digits)
    return predicted, observed


def side(value: Value | None, folio: Folio, claim: str) -> Markup:
    """What a claim predicts or observes, printed; words without their underscores."""
    if value is None:
        return Markup('<span class="pb-absent">{}</span>').format(
            folio.ui["verdicts"]["no_evidence"]
        )
    if isinstance(value.number, str):
        value = replace(value, number=value.number.replace("_", " "))
    return folio.show(value, claim)


def points(share: float) -> str:
    """A difference between two shares, which is no share of either."""
    sign = "−" if share < 0 else ""
    return f"{sign}{abs(share) * 100:.3g}{units.NBSP}points"


def tolerance_of(claim: Claim, observed: Value | None) -> str:
    """How far observed may lie from predicted; empty where it may not."""
    if claim.tolerance is None:
        return ""
    written = units.Form(way="written")
    if claim.tolerance.epsilons is not None:
        num = units.printed(claim.tolerance.epsilons, units.COUNT, written)
        return f"{num} epsilons of {claim.tolerance.dtype}"
    if claim.tolerance.blocks is not None:
        return units.printed(claim.tolerance.slack(0), units.BYTES, written)
    relative = claim.tolerance.relative
    if relative is None and observed is not None and observed.unit == units.SHARE:
        return points(claim.tolerance.absolute or 0)
    if relative is None:
        return units.printed(claim.tolerance.absolute or 0, units.PLAIN, written)
    if relative >= SMALLEST_PERCENTAGE:
        return f"{relative * 100:g}%"
    return f"{units.printed(relative, units.PLAIN, written)} of predicted"


def domain_of(claim: Claim, folio: Folio) -> Markup:
    """Where a claim holds, and why not elsewhere; empty where its author does not say."""
    if claim.domain is None:
        return Markup("")
    if claim.domain == "everywhere":
        return Markup(escape(folio.ui["evidence"]["everywhere"]))
    assert isinstance(claim.domain, Domain)
    places = escape(", ".join([*(claim.domain.device or []), *(claim.domain.backend or [])]))
    because = claim.domain.because
    return Markup("{} ({})").format(places, folio.line(because)) if because else places


# A sentence's verdict as it is shown of one machine, and its class.
STANDINGS = {
    "false": "pb-does-not-hold",
    "too_general": "pb-differs",
    "depends": "pb-differs",
    "true": "pb-holds",
    "otherwise": "pb-differs",
    "untested": "pb-does-not-apply",
}


def standing(sentence: Retraction, outcome: Outcome) -> str:
    """How a sentence stands after its run: its verdict where the runs of a machine bear it out."""
    if statement_checks.shown(sentence, outcome) == "untested":
        return "untested"
    return sentence.verdict if statement_checks.bears_out(sentence, outcome) else "otherwise"

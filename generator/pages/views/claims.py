"""Claims as pages show them: what was predicted and observed, on each machine, and the verdict.

A lesson shows the claims of a section as a table. The page of the experiment that a claim rests on
has all of it, on every machine that has measured what it needs. The page of all evidence says what
claims come to: how many laws hold, and which are furthest off.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup, escape

from generator.content.claim import Claim, Domain, Reference
from generator.content.shelf import published_references
from generator.content.typesetting import plain
from generator.evidence import law_shown, regime, units
from generator.evidence.folio import Folio
from generator.evidence.law_shown import in_one_form, off_by
from generator.evidence.machines import parts
from generator.evidence.value import Value, numeric
from generator.evidence.verdicts import UNDECIDED, Outcome, written
from generator.pages.shown import Shown

MAX_DIGITS = 12
CONTRARY = ("does_not_hold", "not_distinguishable")  # what a section says outside its fold
NUM_FURTHEST = 5


# --- in a lesson


def verdict_rows(names: Sequence[str], folio: Folio) -> list[Shown]:
    """Several claims, in the order in which they are named, as the table that ends a section."""
    rows = [verdict_row(name, folio) for name in names]
    folio.shown_claims.clear()
    return rows


def verdict_row(name: str, folio: Folio) -> Shown:
    """One claim, judged on the runs this book shows; without numbers that its section has told."""
    claim, outcome = folio.book.claims[name], folio.outcome(name)
    folio.runs.update(outcome.runs)
    is_told = name in folio.shown_claims
    predicted, observed = (Markup(""), Markup("")) if is_told else sides_of(outcome, folio)
    return Shown(
        claim=claim,
        says=folio.line(claim.says),
        predicted=predicted,
        observed=observed,
        words=outcome.verdict.replace("_", " "),
        css=css_of(outcome),
        runs=outcome.runs,
        formula=_formula_of(claim, folio),
        is_told=is_told,
        is_contrary=not is_told and outcome.verdict in CONTRARY,
        regime=_regime_of(claim, outcome, folio) if _is_of_a_machine(folio, claim) else "",
    )


def _is_of_a_machine(folio: Folio, claim: Claim) -> bool:
    """Whether a claim reads times or memory, which batch, device and ranks decide."""
    read = [field for side in folio.evidence.sides(claim) for field in side.measured]
    return any(".timing." in field or ".memory." in field for field in read)


def runs_behind(claims: Sequence[str], folio: Folio) -> list[str]:
    """The runs that claims were judged on, each once."""
    return list(dict.fromkeys(run for one in claims for run in folio.outcome(one).runs))


def sides_of(outcome: Outcome, folio: Folio) -> tuple[Markup, Markup]:
    """What was predicted, behind its relation, and what was observed."""
    predicted, observed = _readable(outcome)
    is_bare = predicted is None or predicted.is_digest
    relation = "" if is_bare else folio.ui["relations"][outcome.claim.relation]
    said = Markup("{}{}").format(relation, _side(predicted, folio, outcome.claim.id))
    return said, _side(observed, folio, outcome.claim.id)


def _readable(outcome: Outcome) -> tuple[Value | None, Value | None]:
    """Both sides as a person reads them: in one form, and different where the verdict says so.

    Of digests a person reads whether they are equal to the bit.
    """
    predicted, observed = in_one_form(outcome.predicted, outcome.observed)
    is_equal, holds = outcome.claim.relation == "equals", outcome.verdict == "holds"
    if predicted is None or observed is None:
        return predicted, observed
    if predicted.is_digest or observed.is_digest:
        words = {True: "bitwise identical", False: "different"}
        came_out = words[is_equal == holds]
        return replace(predicted, words=words[is_equal]), replace(observed, words=came_out)
    if predicted.number == observed.number or (is_equal and holds):
        return predicted, observed
    for digits in range(5, MAX_DIGITS + 1):
        if str(predicted) != str(observed) or isinstance(predicted.number, str):
            break
        predicted, observed = predicted.shown(digits=digits), observed.shown(digits=digits)
    return predicted, observed


def _side(value: Value | None, folio: Folio, claim: str) -> Markup:
    """What a claim predicts or observes, printed; words without their underscores."""
    if value is None:
        return Markup('<span class="pb-absent">no evidence</span>')
    if isinstance(value.number, str):
        value = replace(value, number=value.number.replace("_", " "))
    return folio.show(value, claim)


def css_of(outcome: Outcome) -> str:
    """The class of a verdict, which colours it."""
    return f"pb-{outcome.verdict.replace('_', '-')}"


def _formula_of(claim: Claim, folio: Folio) -> Markup | None:
    """A claim's rule: as its author wrote it, or else as its expressions print."""
    formula = law_shown.shown(claim)
    return folio.line(formula) if formula else None


def _regime_of(claim: Claim, outcome: Outcome, folio: Folio) -> Markup:
    """Under which conditions the runs of a claim were measured."""
    lent = folio.evidence.reference if outcome.on_reference else None
    book = lent.book if lent else folio.book
    runs = {name: run for name in outcome.runs if (run := book.run(name))}
    return folio.line(regime.line(claim, runs, folio.strategy))


# --- on the page of an experiment


def proofs_of(
    names: Sequence[str], lessons: Mapping[str, Sequence[tuple[str, str]]], folio: Folio
) -> list[Shown]:
    """The claims that rest on an experiment first of all; runs tell those of one sentence apart."""
    found = [_proof(name, lessons.get(name, ()), folio) for name in names]
    alike = Counter(plain(one.says) for one in found)
    return [one if alike[plain(one.says)] > 1 else one.but(runs=()) for one in found]


def _proof(name: str, lessons: Sequence[tuple[str, str]], folio: Folio) -> Shown:
    claim, here = folio.book.claims[name], folio.at_hand.outcome(name)
    folio.runs.update(here.runs)
    judged = list(_judged(name, folio))
    return Shown(
        claim=claim,
        says=folio.line(claim.says),
        formula=_formula_of(claim, folio),
        domain=_domain_of(claim, folio),
        tolerance=tolerance_of(claim, here.observed),
        regime=_regime_of(claim, here, folio),
        lessons=lessons,
        judged=judged,
        runs=[run.partition(".")[2] for run in here.runs],
        holds=here.verdict == "holds" and not any(one.differs for one in judged),
    )


def _judged(name: str, folio: Folio) -> Iterator[Shown]:
    """A claim on the machine shown, then on the others that have measured what it needs."""
    here = folio.at_hand.outcome(name)
    holder = measured_by(here, folio)
    yield _judgement(here, holder, folio, folio)
    for machine, there in folio.other_outcomes.items():
        if name in there.outcomes and machine != holder:
            outcome, said = there.outcomes[name], folio.over(there.evidence)
            yield _judgement(outcome, machine, said, folio, differs=parts(here, outcome))


def measured_by(outcome: Outcome, folio: Folio) -> str:
    """The machine behind a verdict, which is the reference machine where that stands in."""
    shown = folio.book.holder(outcome.runs[0]) if outcome.runs else None
    return outcome.machine or (shown and shown.measured_on) or folio.book.machine.name


def _judgement(
    outcome: Outcome, machine: str, said: Folio, folio: Folio, *, differs: bool = False
) -> Shown:
    """A verdict with its numbers on the page, and with its words by the machine's evidence."""
    predicted, observed = sides_of(outcome, folio)
    showed = written(outcome)
    text = showed or (outcome.explanation if outcome.verdict != "holds" else "")
    heads = ["Predicted", "Observed"]
    if outcome.observed and outcome.observed.nature == "simulated":
        heads[1] = outcome.observed.kind.capitalize()
        if outcome.predicted and outcome.predicted.kind == "cited":
            heads[0] = "Cited"
    return Shown(
        machine=machine,
        predicted=predicted,
        observed=observed,
        heads=heads,
        off=_off(outcome, folio) if outcome.claim.relation == "equals" else None,
        words=outcome.verdict.replace("_", " "),
        css=css_of(outcome),
        says=said.line(text) if text else "",
        is_showed=bool(showed),
        differs=differs,
        why=said.line(outcome.explanation) if outcome.verdict in UNDECIDED else "",
    )


def _off(outcome: Outcome, folio: Folio) -> Markup | None:
    """How far off a prediction is: as a share of the observation, else as it is."""
    value = off_by(outcome.predicted, outcome.observed, outcome.claim.tolerance)
    if value is not None and value.form.way != "error" and value.unit == units.SHARE:
        value = replace(value, number=_points(float(numeric(value))), unit=units.TEXT)
    return folio.show(value) if value else None


def _points(share: float) -> str:
    """A difference between two shares, which is no share of either."""
    sign = "−" if share < 0 else ""
    return f"{sign}{abs(share) * 100:.3g}{units.NBSP}points"


def tolerance_of(claim: Claim, observed: Value | None) -> str:
    """How far observed may lie from predicted; empty where it may not."""
    one = claim.tolerance
    if one is None:
        return ""
    if one.epsilons is not None:
        return f"{one.epsilons:,} epsilons of {one.dtype}"
    if one.relative is not None:
        return f"{one.relative * 100:g}%"
    if observed is not None and observed.unit == units.SHARE:
        return _points(one.slack(0))
    unit = observed.unit if observed and observed.unit == units.BYTES else units.PLAIN
    return units.printed(one.slack(0), unit, units.Form(way="written"))


def _domain_of(claim: Claim, folio: Folio) -> Markup:
    """Where a claim holds, and why not elsewhere; empty where its author does not say."""
    if isinstance(claim.domain, Domain):
        places = escape(", ".join([*(claim.domain.device or []), *(claim.domain.backend or [])]))
        because = claim.domain.because
        return Markup("{} ({})").format(places, folio.line(because)) if because else places
    return Markup(escape("holds everywhere" if claim.domain else ""))


# --- on the page of all evidence


def tally(claims: Sequence[str], folio: Folio) -> Shown:
    """What these claims come to."""
    outcomes = [folio.at_hand.outcome(name) for name in claims]
    laws = [one.verdict for one in outcomes if one.claim.kind == "law"]
    observed = [one for one in outcomes if one.claim.kind == "observation"]
    return Shown(
        num_laws=len(laws),
        num_holding=laws.count("holds"),
        num_beyond=laws.count("does_not_apply") + laws.count("no_evidence"),
        num_observations=len(observed),
        contrary=[one.claim.id for one in observed if one.verdict == "does_not_hold"],
    )


def furthest(folio: Folio) -> list[Shown]:
    """The laws that predict a number and are furthest off it."""
    found = []
    for name, outcome in folio.at_hand.outcomes.items():
        if outcome.claim.kind == "law" and outcome.claim.relation == "equals":
            off = off_by(outcome.predicted, outcome.observed, outcome.claim.tolerance)
            if off is not None and off.form.way == "error" and numeric(off):
                found.append((abs(float(numeric(off))), name, off))
    said = folio.over(folio.evidence)
    said.runs = set()  # a list of all experiments names no run of theirs at its foot
    return [
        Shown(
            place=folio.claim_place(name),
            says=folio.line(folio.book.claims[name].says),
            off=said.show(off),
        )
        for _, name, off in sorted(found, key=lambda one: -one[0])[:NUM_FURTHEST]
    ]


def on_others(folio: Folio) -> Iterator[tuple[str, int, int]]:
    """Each other machine: how many claims it decides as well, and how many otherwise."""
    for machine, other in folio.other_outcomes.items():
        pairs = [(folio.at_hand.outcome(name), there) for name, there in other.outcomes.items()]
        decided = [UNDECIDED.isdisjoint({here.verdict, there.verdict}) for here, there in pairs]
        yield machine, sum(decided), sum(parts(*pair) for pair in pairs)


def cited(folio: Folio) -> tuple[list[list[Reference]], list[Reference]]:
    """What the book cites, a list for each document, by title; and rows of published tables."""
    found = sorted(folio.book.references.values(), key=lambda one: one.title.strip("“").lower())
    of_rows = {one.id for one in published_references(folio.book.traces)}
    documents: dict[str, list[Reference]] = {}
    for one in found:
        if one.id not in of_rows:
            documents.setdefault(one.url, []).append(one)
    return list(documents.values()), [one for one in found if one.id in of_rows]

"""Claims as pages show them: what was predicted and observed, on each machine, and the verdict.

A lesson shows the claims of a section as a table. The page of the experiment that a claim rests on
has all of it, on every machine that has measured what it needs. The page of all evidence says what
claims come to: how many laws hold, and which are furthest off.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup, escape

from generator.content.claim import Claim, Domain, NumberTolerance, Reference
from generator.content.shelf import published_references
from generator.content.typesetting import plain
from generator.pages.view import View
from generator.printing.folio import Folio
from generator.values import claim_formula, regime, units
from generator.values.claim_formula import SIGNS, in_same_form, off_by
from generator.values.machines import disagree
from generator.values.value import Value, numeric
from generator.values.verdicts import UNDECIDED, Judged
from runners.core.trace.fields import NBSP

MAX_DIGITS = 12
CLOSE, MORE_DIGITS = 1e-3, 6  # where three digits would make much of a difference
DECIDED = ("holds", "does_not_hold")  # which both sides explain
CONTRARY = ("does_not_hold", "not_distinguishable")  # what a section says outside its fold
BOUNDS = {"at_most": 1, "below": 1, "at_least": -1, "above": -1}  # by the sign of what is left
NUM_FURTHEST = 5


# --- in a lesson


def verdict_rows(names: Sequence[str], folio: Folio) -> list[View]:
    """`View`s, a row for each of a section's claims, by name; clears `folio.shown_claims`."""
    repeated = folio.shown_claims
    outcomes = [folio.judged(name) for name in names if name not in repeated]
    page = folio.for_table(
        side for outcome in outcomes for side in (outcome.predicted, outcome.observed)
    )
    rows = [verdict_row(name, folio if name in repeated else page) for name in names]
    folio.shown_claims.clear()
    return rows


def verdict_row(name: str, folio: Folio) -> View:
    """`View` of a claim, by name, and its verdict; without numbers that the section has already."""
    claim, outcome = folio.book.claims[name], folio.judged(name)
    folio.runs.update(outcome.runs)
    is_repeated = name in folio.shown_claims
    return _verdict(outcome, folio, has_sides=not is_repeated).copy_with(
        claim=claim,
        says=folio.line(claim.says),
        runs=outcome.runs,
        formula=_formula_of(claim, folio),
        is_repeated=is_repeated,
        is_contrary=not is_repeated and outcome.verdict in CONTRARY,
        regime=_regime_of(outcome, folio) if _is_of_a_machine(folio, claim) else "",
    )


def _verdict(outcome: Judged, folio: Folio, *, has_sides: bool = True) -> View:
    """A verdict and both sides of its claim, printed on a page."""
    predicted, observed = sides_of(outcome, folio) if has_sides else (Markup(""), Markup(""))
    words, css = outcome.verdict.replace("_", " "), css_of(outcome)
    return View(predicted=predicted, observed=observed, words=words, css=css, caption=folio.caption)


def _is_of_a_machine(folio: Folio, claim: Claim) -> bool:
    """Whether a claim reads times or memory, which batch, device and ranks decide."""
    read = [field for side in folio.evidence.sides(claim) for field in side.measured]
    return any(".timing." in field or ".memory." in field for field in read)


def runs_behind(claims: Sequence[str], folio: Folio) -> list[str]:
    """The runs that claims were judged on, each once."""
    return list(dict.fromkeys(run for claim in claims for run in folio.judged(claim).runs))


def sides_of(outcome: Judged, folio: Folio) -> tuple[Markup, Markup]:
    """Pair of HTML: a judged claim's prediction, behind its relation's sign, and observation."""
    predicted, observed = _readable(outcome)
    is_bare = predicted is None or predicted.is_digest
    relation = outcome.claim.relation
    sign = "" if is_bare or relation == "equals" else SIGNS[relation] + NBSP
    relation_and_value = Markup("{}{}").format(sign, _side(predicted, folio, outcome.claim.id))
    return relation_and_value, _side(observed, folio, outcome.claim.id)


def _readable(outcome: Judged) -> tuple[Value | None, Value | None]:
    """Both sides as a person reads them: in one form, and different where the verdict says so.

    Of digests a person reads whether they are equal to the bit.
    """
    predicted, observed = in_same_form(outcome.predicted, outcome.observed)
    is_equal, holds = outcome.claim.relation == "equals", outcome.verdict == "holds"
    if predicted is None or observed is None:
        return predicted, observed
    if predicted.is_digest or observed.is_digest:
        words = {True: "bitwise identical", False: "different"}
        came_out = words[is_equal == holds]
        return replace(predicted, words=words[is_equal]), replace(observed, words=came_out)
    is_text = isinstance(predicted.number, str) or isinstance(observed.number, str)
    if is_text or predicted.number == observed.number:
        return predicted, observed
    if is_equal and holds:
        is_close = abs(numeric(observed) - numeric(predicted)) < CLOSE * abs(numeric(observed))
        more = MORE_DIGITS if is_close and str(predicted) != str(observed) else None
        return predicted.formatted(digits=more), observed.formatted(digits=more)
    for digits in range(5, MAX_DIGITS + 1):
        if str(predicted) != str(observed):
            break
        predicted, observed = predicted.formatted(digits=digits), observed.formatted(digits=digits)
    return predicted, observed


def _side(value: Value | None, folio: Folio, claim: str) -> Markup:
    """What a claim predicts or observes, printed; words without their underscores."""
    if value is None:
        return Markup('<span class="pb-absent">no evidence</span>')
    if isinstance(value.number, str):
        value = replace(value, number=value.number.replace("_", " "))
    return folio.show(value, claim)


def css_of(outcome: Judged) -> str:
    """The CSS class of a verdict."""
    return f"pb-{outcome.verdict.replace('_', '-')}"


def _formula_of(claim: Claim, folio: Folio) -> Markup | None:
    """A claim's rule: as its author wrote it, or else as its expressions print."""
    formula = claim_formula.formula_of(claim)
    return folio.line(formula) if formula else None


def _regime_of(outcome: Judged, folio: Folio, has_turns: bool = True) -> Markup:
    """Under which conditions the runs of a claim were measured."""
    book = folio.evidence.for_runs(outcome.runs).book
    runs = {name: run for name in outcome.runs if (run := book.run(name))}
    return folio.line(regime.line(outcome.claim, runs, folio.strategy, has_turns))


# --- on the page of an experiment


def proofs_of(
    names: Sequence[str], lessons: Mapping[str, Sequence[tuple[str, str]]], folio: Folio
) -> list[View]:
    """`View`s of claims, verdicts by machine; runs named only where claims share their sentence."""
    proofs = [_proof(name, lessons.get(name, ()), folio) for name in names]
    alike = Counter(plain(proof.says) for proof in proofs)
    return [proof if alike[plain(proof.says)] > 1 else proof.copy_with(runs=()) for proof in proofs]


def _proof(name: str, lessons: Sequence[tuple[str, str]], folio: Folio) -> View:
    claim, here = folio.book.claims[name], folio.at_hand.judged(name)
    folio.runs.update(here.runs)
    judged = list(_by_machine(name, folio))
    decided = [verdict for verdict in judged if verdict.regime and not verdict.why] or judged[:1]
    regimes = [verdict.regime.split("; ") for verdict in decided]
    words = [[*map(plain, conditions)] for conditions in regimes]
    shared = [part for part in regimes[0] if all(plain(part) in conditions for conditions in words)]
    return View(
        claim=claim,
        says=folio.line(claim.says),
        formula=_formula_of(claim, folio),
        domain=_domain_of(claim, folio),
        tolerance=tolerance_of(claim.tolerance, here.observed),
        regime=Markup("; ").join(shared) if judged[1:] else _regime_of(here, folio),
        lessons=lessons,
        judged=_merged(judged, shared),
        machine=judged[0].machine,
        is_of_planner={folio.book.traces[path.split(".")[0]].is_of_planner for path in here.runs}
        == {True},
        differs=any(verdict.differs for verdict in judged),
        runs=[run.partition(".")[2] for run in here.runs],
        holds=here.verdict == "holds" and not any(verdict.differs for verdict in judged),
    )


def _merged(judged: Sequence[View], shared: Sequence[str]) -> list[View]:
    """Verdicts of machines, merged where they print alike, with the regime that only they have."""
    by_texts: dict[tuple[str, ...], list[View]] = {}
    for verdict in judged:
        own = [part for part in plain(verdict.regime).split("; ") if part not in map(plain, shared)]
        sides = (verdict.predicted, verdict.observed, verdict.off or "")
        texts = (*sides, verdict.words, verdict.says, "; ".join(own))
        by_texts.setdefault(tuple(map(plain, texts)), []).append(verdict)
    return [
        ones[0].copy_with(machines=[verdict.machine for verdict in ones], regime=texts[-1])
        for texts, ones in by_texts.items()
    ]


def _by_machine(name: str, folio: Folio) -> Iterator[View]:
    """A claim on the machine shown, then on the others that have measured what it needs."""
    here = folio.at_hand.judged(name)
    holder = measured_by(here, folio)
    outcomes = [(here, holder, folio)]
    for machine, there in folio.other_outcomes.items():
        if name in there.judged_claims and machine != holder:
            outcomes.append((there.judged_claims[name], machine, folio.over(there.evidence)))
    is_headed = here.observed is not None and here.observed.kind == "simulated"
    page = folio.without_mark("simulated") if is_headed else folio
    page = page.for_table(
        v for outcome, *_ in outcomes for v in (outcome.predicted, outcome.observed, _off(outcome))
    )
    for outcome, machine, machine_folio in outcomes:
        yield _judged_row(outcome, machine, machine_folio, page, differs=disagree(here, outcome))


def measured_by(outcome: Judged, folio: Folio) -> str:
    """The machine behind a verdict: the reference machine where it stands in."""
    trace = folio.book.holder(outcome.runs[0]) if outcome.runs else None
    return outcome.machine or (trace and trace.measured_on) or folio.book.machine.name


def _judged_row(outcome: Judged, machine: str, local: Folio, page: Folio, *, differs: bool) -> View:
    """A verdict with its numbers on the page, and with its words by the machine's evidence."""
    showed = outcome.claim.sentence_for(outcome.verdict)
    text = showed or (outcome.explanation if outcome.verdict not in DECIDED else "")
    heads = ["Predicted", "Observed"]
    if outcome.observed and outcome.observed.nature == "simulated":
        heads[1] = outcome.observed.kind.capitalize()
        if outcome.predicted and outcome.predicted.kind == "cited":
            heads[0] = "Cited"
    off = _off(outcome)
    return _verdict(outcome, page).copy_with(
        machine=machine,
        regime=_regime_of(outcome, local, has_turns=False),
        heads=heads,
        off=page.show(off) if off else None,
        says=local.line(text) if text else "",
        is_showed=bool(showed),
        differs=differs,
        why=local.line(outcome.explanation) if outcome.verdict in UNDECIDED else "",
    )


def _off(outcome: Judged) -> Value | None:
    """How far off a prediction is, also a bound: as a share of the observation, else as it is."""
    relation, tolerance = outcome.claim.relation, outcome.claim.tolerance
    is_name = outcome.observed is not None and outcome.observed.unit == units.ORDINAL
    if is_name or not (relation == "equals" or (relation in BOUNDS and tolerance)):
        return None
    value = off_by(outcome.predicted, outcome.observed, tolerance)
    if value is not None and relation in BOUNDS and numeric(value) * BOUNDS[relation] >= 0:
        return None  # within the bound itself
    if value is not None and value.form.way != "error" and value.unit == units.SHARE:
        value = replace(value, number=_points(float(numeric(value))), unit=units.TEXT)
    return value


def _points(share: float) -> str:
    """A difference between two shares, which is no share of either."""
    sign = "−" if share < 0 else ""
    return f"{sign}{abs(share) * 100:.3g}{NBSP}points"


def tolerance_of(tolerance: NumberTolerance | None, observed: Value | None) -> str:
    """A tolerance as text: epsilons, per cent, points, or the observed unit; empty for none."""
    if tolerance is None:
        return ""
    if tolerance.epsilons is not None:
        return f"{tolerance.epsilons:,} epsilons of {tolerance.dtype}"
    if tolerance.relative is not None:
        return f"{tolerance.relative * 100:g}%"
    if observed is not None and observed.unit == units.SHARE:
        return _points(tolerance.slack(0))
    unit = observed.unit if observed else units.PLAIN
    return units.printed(tolerance.slack(0), unit, units.Form(way="written"))


def _domain_of(claim: Claim, folio: Folio) -> Markup:
    """Where a claim holds, and why not elsewhere; empty where its author does not say."""
    if isinstance(claim.domain, Domain):
        places = escape(", ".join([*(claim.domain.device or []), *(claim.domain.backend or [])]))
        because = claim.domain.because
        return Markup("{} ({})").format(places, folio.line(because)) if because else places
    return Markup(escape("holds everywhere" if claim.domain else ""))


# --- on the page of all evidence


def tally(claims: Sequence[str], folio: Folio) -> View:
    """Judge claims by name: a `View` of counts here; `contrary`: observations that do not hold."""
    outcomes = [folio.at_hand.judged(name) for name in claims]
    machine = folio.at_hand.book.machine.name
    here = [outcome for outcome in outcomes if measured_by(outcome, folio) == machine]
    laws = [outcome.verdict for outcome in here if outcome.claim.kind == "law"]
    observed = [outcome for outcome in here if outcome.claim.kind == "observation"]
    return View(
        num_laws=len(laws),
        num_holding=laws.count("holds"),
        num_beyond=laws.count("does_not_apply") + laws.count("no_evidence"),
        num_observations=len(observed),
        num_lent=len(outcomes) - len(here),
        contrary=[outcome.claim.id for outcome in observed if outcome.verdict == "does_not_hold"],
    )


def furthest(folio: Folio) -> list[View]:
    """`View`s of the `NUM_FURTHEST` laws of equality with the largest relative errors, in order."""
    errors = []
    for name, outcome in folio.at_hand.judged_claims.items():
        if outcome.claim.kind == "law" and outcome.claim.relation == "equals":
            off = off_by(outcome.predicted, outcome.observed, outcome.claim.tolerance)
            if off is not None and off.form.way == "error" and numeric(off):
                errors.append((abs(float(numeric(off))), name, off))
    # A list of all experiments names no run of theirs at its foot.
    page = folio.over(folio.evidence, runs=set())
    return [
        View(
            place=folio.claim_place(name),
            says=page.in_link.line(folio.book.claims[name].says),
            off=page.show(off),
        )
        for _, name, off in sorted(errors, key=lambda error: -error[0])[:NUM_FURTHEST]
    ]


def on_others(folio: Folio) -> Iterator[tuple[str, int, int]]:
    """Per other machine: its name, how many claims it decides as well, and how many otherwise."""
    for machine, other in folio.other_outcomes.items():
        pairs = [(folio.at_hand.judged(name), there) for name, there in other.judged_claims.items()]
        decided = [UNDECIDED.isdisjoint({here.verdict, there.verdict}) for here, there in pairs]
        yield machine, sum(decided), sum(disagree(*pair) for pair in pairs)


def cited(folio: Folio) -> tuple[list[list[Reference]], list[Reference]]:
    """All references, in lists by URL, by title; apart, those of rows of published tables."""
    references = sorted(
        folio.book.references.values(), key=lambda reference: reference.title.strip("“").lower()
    )
    of_rows = {reference.id for reference in published_references(folio.book.traces)}
    documents: dict[str, list[Reference]] = {}
    for reference in references:
        if reference.id not in of_rows:
            documents.setdefault(reference.url, []).append(reference)
    return list(documents.values()), [ref for ref in references if ref.id in of_rows]

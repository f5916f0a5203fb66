"""The book's proof: every claim with what was predicted and observed on each machine there is.

Claims stand on the page of the experiment that they rest on. The index says what they come to: how
many laws hold, how many observations there are, and where a law was furthest off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from generator.content.typesetting import plain
from generator.evidence import units
from generator.evidence.claim_topics import LessonPlace
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import Folio
from generator.evidence.law_sides import off_by
from generator.evidence.other_machines import parts
from generator.evidence.value import Value, numeric
from generator.evidence.verdicts import UNDECIDED, Outcome, written
from generator.pages.shown import Shown
from generator.pages.views.claims import (
    css_of,
    domain_of,
    formula_of,
    observed_of,
    points,
    predicted_of,
    regime_of,
    told_apart,
    tolerance_of,
)

NUM_FURTHEST = 5


def proofs_of(
    names: Sequence[str], lessons: Mapping[str, tuple[LessonPlace, ...]], folio: Folio
) -> list[Shown]:
    """The claims that rest on an experiment first of all."""
    found = [_proof(name, lessons.get(name, ()), folio) for name in names]
    said = repeated(one.says for one in found)
    return [one if plain(one.says) in said else one.but(runs=()) for one in found]


def repeated(sentences: Iterable[str]) -> set[str]:
    """The sentences that several claims share, which only their runs tell apart."""
    return {says for says, num in Counter(map(plain, sentences)).items() if num > 1}


def _proof(name: str, lessons: tuple[LessonPlace, ...], folio: Folio) -> Shown:
    claim, here = folio.book.claims[name], folio.outcomes[name]
    folio.runs.update(here.runs)
    judged = tuple(
        _judgement(outcome, machine, evidence, folio, differs)
        for outcome, machine, evidence, differs in outcomes_of(name, folio)
    )
    return Shown(
        claim=claim,
        says=folio.line(claim.says),
        formula=formula_of(claim, folio),
        domain=domain_of(claim, folio),
        tolerance=tolerance_of(claim, here.observed),
        regime=regime_of(claim, here, folio),
        lessons=lessons,
        judged=judged,
        runs=names_of(here),
        holds=here.verdict == "holds" and not any(one.differs for one in judged),
    )


def names_of(outcome: Outcome) -> tuple[str, ...]:
    """The runs that decide a claim, without the names of their experiments."""
    return tuple(run.partition(".")[2] for run in outcome.runs)


def outcomes_of(name: str, folio: Folio) -> Iterator[tuple[Outcome, str, Evidence, bool]]:
    """A claim on the machine shown, then on the others that have measured what it needs.

    Yields:
        The outcome, the machine, what it was judged by, and whether it differs from the first.
    """
    here = folio.outcomes[name]
    holder = measured_by(here, folio)
    yield here, holder, folio.evidence, False
    for machine, there in folio.other_outcomes.items():
        if name in there.outcomes and machine != holder:
            outcome = there.outcomes[name]
            yield outcome, machine, there.evidence, parts(here, outcome)


def measured_by(outcome: Outcome, folio: Folio) -> str:
    """The machine behind a verdict, which is the reference machine where that stands in."""
    shown = folio.book.holder(outcome.runs[0]) if outcome.runs else None
    return outcome.machine or (shown and shown.measured_on) or folio.book.machine.name


def _judgement(
    outcome: Outcome, machine: str, evidence: Evidence, folio: Folio, differs: bool
) -> Shown:
    claim = outcome.claim
    predicted, observed = told_apart(outcome)
    showed = written(outcome)
    text = showed or (outcome.explanation if outcome.verdict != "holds" else "")
    is_open, said = outcome.verdict in UNDECIDED, folio.text.over(evidence)
    return Shown(
        machine=machine,
        predicted=predicted_of(outcome, predicted, folio),
        observed=observed_of(outcome, observed, folio),
        off=_off(off_by(claim, outcome.predicted, outcome.observed), folio)
        if claim.relation == "equals"
        else None,
        words=folio.ui["verdicts"][outcome.verdict],
        css=css_of(outcome),
        says=said.line(text) if text else Markup(""),
        is_showed=bool(showed),
        differs=differs,
        why=said.line(outcome.explanation) if is_open else Markup(""),
    )


def _off(value: Value | None, folio: Folio) -> Markup | None:
    if value is None:
        return None
    is_share = value.form.way == "percent"
    if not is_share and value.unit == units.SHARE:
        in_points = points(float(numeric(value)))
        value = replace(value, number=in_points, unit=units.TEXT)
    return folio.show(value)


def on_others(folio: Folio) -> list[tuple[str, int, int]]:
    """Each other machine: how many claims it decides as well, and how many otherwise."""
    return [
        (
            machine,
            sum(
                UNDECIDED.isdisjoint({folio.outcomes[name].verdict, there.verdict})
                for name, there in other.outcomes.items()
            ),
            sum(parts(folio.outcomes[name], there) for name, there in other.outcomes.items()),
        )
        for machine, other in folio.other_outcomes.items()
    ]


def tally(claims: Sequence[str], folio: Folio) -> Shown:
    """What these claims come to."""
    outcomes = [folio.outcomes[name] for name in claims]
    laws = [one for one in outcomes if one.claim.kind == "law"]
    beyond = [one for one in laws if one.verdict in ("does_not_apply", "no_evidence")]
    found = furthest(claims, folio, 1)
    return Shown(
        num_laws=len(laws),
        num_holding=sum(one.verdict == "holds" for one in laws),
        num_beyond=len(beyond),
        num_observations=len(outcomes) - len(laws),
        num_contrary=sum(
            one.claim.kind == "observation" and one.verdict == "does_not_hold" for one in outcomes
        ),
        furthest=found[0] if found else None,
    )


def furthest(claims: Sequence[str], folio: Folio, num: int) -> list[Shown]:
    """The laws among these that predict a number, those furthest off first, if off at all."""
    found = []
    for name in claims:
        outcome = folio.outcomes[name]
        if outcome.claim.kind == "law" and outcome.claim.relation == "equals":
            off = off_by(outcome.claim, outcome.predicted, outcome.observed)
            if off is not None and off.form.way == "percent" and numeric(off):
                found.append((abs(float(numeric(off))), name, off))
    said = folio.text.over(folio.evidence)
    said.runs = set()  # a list of all experiments names no run of theirs at its foot
    return [
        Shown(
            claim=name,
            place=folio.claim_place(name),
            says=folio.line(folio.book.claims[name].says),
            off=said.show(off),
        )
        for _, name, off in sorted(found, key=lambda one: -one[0])[:num]
    ]

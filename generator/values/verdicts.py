"""Verdicts: what this machine's traces say about the rule of a claim.

In: a claim, and its sides as they were evaluated. Out: the verdict, and why. Where the observed
runs lie outside the claim's domain it does not apply; where a trace is stale, or a run did not
measure, there is no evidence; two times whose quartile ranges overlap are not distinguishable.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from proofbook.generator.content.book import Book
from proofbook.generator.content.claim import Claim, Domain, Relation, Verdict
from proofbook.generator.values import list_sides, units
from proofbook.generator.values.paths import Evaluation, Node
from proofbook.generator.values.value import QUOTED, ExpressionError, Value, constant, numeric
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.traces.tolerance import FEWEST_SAMPLES, overlap

FLOAT_BLUR = 1e-12
LACKS = "a run that ended as declared lacks a value here"
Side = Value | Node | tuple[Any, ...] | None  # what a claim is judged on
UNDECIDED: frozenset[Verdict] = frozenset({"does_not_apply", "no_evidence"})
TIMED = ("faster", "slower")


@dataclass(frozen=True)
class Judged:
    """The verdict on one claim."""

    claim: Claim
    verdict: Verdict
    predicted: Value | None  # what settings and a formula say; the median of samples
    observed: Value | None  # what was measured; the median where samples are compared
    explanation: str  # why this verdict, as a Line without a numeral of its own
    runs: tuple[str, ...]  # the runs that the verdict rests on, as `experiment.run`
    machine: str | None = None  # the machine that measured its runs; None where they are about none
    on_reference: bool = True  # whether all of it was measured on the reference machine
    error: str | None = None  # why the claim cannot be judged at all: the author's mistake
    at: str = "observed"  # the field of the claim that is at fault

    @property
    def experiment(self) -> str:
        """The experiment that it rests on first of all; empty where no run decides it."""
        return self.runs[0].partition(".")[0] if self.runs else ""

    @property
    def is_broken_law(self) -> bool:
        """Whether a law does not hold or cannot be told here, or lacks evidence it should have."""
        return self.claim.kind == "law" and (
            self.verdict in ("does_not_hold", "not_distinguishable")
            or (self.on_reference and self.verdict == "no_evidence")
            or self.explanation == LACKS
        )


def judge(book: Book, claim: Claim, predicted: Evaluation, observed: Evaluation) -> Judged:
    """A `Judged` claim: by domain, staleness or absence, else by comparing its evaluated sides."""
    own = [claim.run] if claim.run in predicted.runs else []  # the first that pages name
    runs = tuple(dict.fromkeys(filter(None, [*own, *predicted.runs, *observed.runs])))
    machines = [book.machine_of(run) for run in runs]
    left, right = _comparable(predicted), _comparable(observed)
    verdict, explanation = _settle(book, claim, predicted, observed)
    error, at = _mistake(predicted, observed)
    if verdict is None and error is None:
        try:
            is_list = any(map(list_sides.is_list, (left, right)))
            compare = _compare_each if is_list else _compare
            verdict, explanation = compare(claim, left, right)
        except (ExpressionError, units.UnitError) as problem:
            error = str(problem)
    return Judged(
        claim=claim,
        verdict=verdict or "no_evidence",
        predicted=list_sides.single_value(left),
        observed=list_sides.single_value(right),
        explanation=explanation or "the claim cannot be judged",
        runs=runs,
        machine=next(filter(None, machines), None),
        on_reference={*machines} <= {"", book.reference.name},
        error=error,
        at=at,
    )


def _comparable(side: Evaluation) -> Side:
    """A result that a claim can be judged on: a value, a constant, samples, or a list."""
    if isinstance(side.result, int | float | str) and not isinstance(side.result, bool):
        return constant(side.result)
    return side.result if isinstance(side.result, Value | Node | tuple) else None


def _mistake(predicted: Evaluation, observed: Evaluation) -> tuple[str | None, str]:
    """What is wrong with how the claim is written, and in which of its fields."""
    for field, side, other in ("predicted", predicted, observed), ("observed", observed, predicted):
        if side.error:
            return side.error, field
        is_number = isinstance(getattr(other.result, "number", other.result), int | float)
        if isinstance(side.result, str) and is_number:
            return f"{side.result!r}: {QUOTED}", field
    if not observed.measured and not observed.absent:
        return "observes nothing that a run measured", "observed"
    return None, "observed"


def _settle(
    book: Book, claim: Claim, predicted: Evaluation, observed: Evaluation
) -> tuple[Verdict | None, str]:
    """The verdict where there is nothing to compare, and why."""
    names = (*predicted.runs, *observed.runs)
    runs = [run for run in map(book.run, names) if run is not None]
    is_skipped = any(run.status == "skipped" for run in runs)
    because = "a run that it needs was skipped" if is_skipped else None
    because = because or _outside(book, claim.domain, observed.runs)
    because = because or _incomparable(book, claim, predicted, observed)
    if because:
        return "does_not_apply", because
    for trace in map(book.holder, names):
        if trace and trace.is_stale and trace.machine.name != book.reference.name:
            return "no_evidence", "the trace is stale: its experiment's code has changed"
    absent = observed.absent or predicted.absent
    if any(run.status == "failed" and run.is_surprise for run in runs) and (
        absent or any(".timing." in path for path in (*predicted.measured, *observed.measured))
    ):
        return "no_evidence", "a run that it needs failed before it measured this"
    if absent:
        why = "a run that it needs has no such value here" if absent.run else absent.reason
        return "no_evidence", LACKS if absent.is_unexplained else why
    return None, ""


def _outside(book: Book, domain: Domain | str | None, runs: Iterable[str]) -> str | None:
    """Why a law does not apply to the runs it observes, or None where it does."""
    if not isinstance(domain, Domain):
        return None
    for run in filter(None, map(book.run, runs)):
        for field in ("device", "backend"):
            allowed = getattr(domain, field)
            if allowed is not None and getattr(run, field) not in allowed:
                return domain.because or f"it is a law of {', '.join(allowed)}"
    return None


def _incomparable(book: Book, claim: Claim, *sides: Evaluation) -> str | None:
    """Why runs are not compared: of different machines; times, of other devices or backends.

    Where ranks outnumber the accelerators they share them, over gloo. One rank communicates with
    nobody.
    """
    names = [name for side in sides for name in side.runs]
    if len(set(map(book.machine_of, names)) - {""}) > 1:
        return "different machines measured its runs"
    if claim.relation not in TIMED:
        return None
    runs = [run for run in map(book.run, names) if run is not None]
    if len({run.device for run in runs}) > 1:
        return "the runs are on different kinds of device here"
    if len({run.backend for run in runs if run.world_size > 1}) > 1:
        return "the runs communicate over different backends here"
    return None


def _compare_each(claim: Claim, predicted: Side, observed: Side) -> tuple[Verdict, str]:
    if claim.relation in TIMED:
        raise ExpressionError(f"{claim.relation} compares two samples, and no lists")
    pairs = list_sides.paired(predicted, observed)
    noun = list_sides.element_noun(claim.observed)
    for left, right in pairs:
        verdict, explanation = _compare(claim, left, right)
        if verdict != "holds":
            return verdict, f"not for each {noun}: {explanation}"
    return "holds", f"for each {noun}, {explanation}"


def _compare(claim: Claim, predicted: Side, observed: Side) -> tuple[Verdict, str]:
    if claim.relation in TIMED:
        return _compare_times(claim, _samples(predicted), _samples(observed))
    if not isinstance(predicted, Value) or not isinstance(observed, Value):
        raise ExpressionError(f"{claim.relation} compares two single values")
    if isinstance(predicted.number, str) or isinstance(observed.number, str):
        return _compare_words(claim, predicted, observed)
    if not any(not side.leaves and side.unit == units.PLAIN for side in (predicted, observed)):
        units.of_sum(predicted.unit, observed.unit)  # a constant has no unit
    before = numeric(predicted)
    slack = claim.tolerance.slack(before) if claim.tolerance else abs(before) * FLOAT_BLUR
    return _decided(_RELATIONS[claim.relation].holds(numeric(observed), before, slack), claim)


def _decided(holds: bool, claim: Claim) -> tuple[Verdict, str]:
    words = _RELATIONS[claim.relation if holds else _RELATIONS[claim.relation].opposite].words
    return "holds" if holds else "does_not_hold", f"observed {words} predicted"


class _Relation(NamedTuple):
    """A relation of an observed number x to a predicted one y, within an allowed distance."""

    words: str
    opposite: Relation
    holds: Callable[[float, float, float], bool]


_RELATIONS: dict[Relation, _Relation] = {
    "equals": _Relation("equals", "differs", lambda x, y, slack: abs(x - y) <= slack),
    "differs": _Relation("differs from", "equals", lambda x, y, slack: abs(x - y) > slack),
    "at_least": _Relation("is at least", "below", lambda x, y, slack: x >= y - slack),
    "at_most": _Relation("is at most", "above", lambda x, y, slack: x <= y + slack),
    "above": _Relation("is above", "at_most", lambda x, y, slack: x > y + slack),
    "below": _Relation("is below", "at_least", lambda x, y, slack: x < y - slack),
}


def _compare_words(claim: Claim, predicted: Value, observed: Value) -> tuple[Verdict, str]:
    if claim.relation not in ("equals", "differs"):
        raise ExpressionError(f"{claim.relation} compares numbers, not words")
    if not (isinstance(predicted.number, str) and isinstance(observed.number, str)):
        raise ExpressionError("a word and a number are compared")
    same = predicted.number.replace("_", " ") == observed.number.replace("_", " ")
    return _decided(same == (claim.relation == "equals"), claim)


def _samples(side: Side) -> SampledSeconds:
    if isinstance(side, Node) and isinstance(side.content, SampledSeconds):
        return side.content
    raise ExpressionError("faster and slower compare samples, such as ddp.single.timing.step")


def _compare_times(
    claim: Claim, predicted: SampledSeconds, observed: SampledSeconds
) -> tuple[Verdict, str]:
    if min(predicted.num_samples, observed.num_samples) < FEWEST_SAMPLES:
        return "no_evidence", "too few repeats to tell the two times apart"
    if overlap(predicted, observed):
        return "not_distinguishable", "the quartile ranges of the two times overlap"
    low, high = (observed, predicted) if claim.relation == "faster" else (predicted, observed)
    if low.median_seconds < high.median_seconds:
        return "holds", f"observed is {claim.relation}; the quartile ranges do not overlap"
    return "does_not_hold", f"observed is not {claim.relation}, but the other way round"

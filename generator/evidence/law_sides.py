"""A law as a table shows it: its run, both sides in one form, and how far they are apart."""

from __future__ import annotations

from generator.content.claim import Claim, Tolerance
from generator.evidence import units
from generator.evidence.evaluation import Evidence
from generator.evidence.value import Value
from generator.evidence.verdicts import TIMED


def observed_run(claim: Claim, evidence: Evidence) -> str:
    """The run that a claim observes: its own, else the first that its observation reads."""
    _, observed = evidence.sides(claim)
    return claim.run or next(iter(observed.runs), "")


def not_a_number(claim: Claim, evidence: Evidence) -> str | None:
    """Why a claim has no number to print with its measurement, or None."""
    if claim.relation in TIMED:
        return f"{claim.id} compares no numbers: predicted is {claim.predicted}"
    outcome = evidence.outcome(claim.id)
    for side, value in (("predicted", outcome.predicted), ("observed", outcome.observed)):
        if value is not None and isinstance(value.number, str):
            return f"{claim.id} compares no numbers: {side} is {getattr(claim, side)}"
    return None


def in_one_form(
    predicted: Value | None, observed: Value | None
) -> tuple[Value | None, Value | None]:
    """What is predicted of a share is a share too, though a formula made a plain number of it."""
    if predicted is None or observed is None or observed.unit != units.SHARE:
        return predicted, observed
    if predicted.unit.is_number and predicted.form.way is None:
        return predicted.shown(way="percent"), observed
    return predicted, observed


def off_by(
    predicted: Value | None, measured: Value | None, tolerance: Tolerance | None = None
) -> Value | None:
    """The distance of a formula from a measurement, signed, as a share of the measurement.

    It is in their own unit where the tolerance is an amount, and where nothing was measured that it
    could be a share of. None where this machine lacks one of the two, where one is words, and
    where a typed number, which has no unit, is predicted of one that has.

    Raises:
        ExpressionError: the two are no numbers of one unit.
    """
    if predicted is None or measured is None:
        return None
    if isinstance(predicted.number, str) or isinstance(measured.number, str):
        return None
    if not predicted.leaves and predicted.unit.is_number and not measured.unit.is_number:
        return None
    difference: Value = predicted - measured
    if measured.number == 0 or (tolerance is not None and tolerance.absolute is not None):
        return difference
    share: Value = difference / measured
    return share.shown(way="error")

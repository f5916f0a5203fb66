"""A law as a table shows it: its run, what it predicts there, and what was measured.

In: a claim's id, and the evidence. Out: a `LawOnRun`, whose two sides are numbers; or None where
this machine has no such number, and the same of each side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator.content.claim import Claim
from generator.evidence.value import Value
from generator.evidence.verdicts import sides

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence
    from generator.evidence.paths import Evaluation


@dataclass(frozen=True)
class LawOnRun:
    """A law on one run: `predicted` and `measured` are None where this machine has none."""

    run: str
    predicted: Value | None
    measured: Value | None


def on_run(claim: Claim, evidence: Evidence) -> LawOnRun:
    """What a claim predicts of its run, and what was measured there."""
    if claim.quantifier:
        outcome = evidence.outcome(claim.id)
        return LawOnRun(observed_run(claim, evidence), outcome.predicted, outcome.observed)
    predicted, measured = sides(evidence, claim)
    return LawOnRun(observed_run(claim, evidence), _present(predicted), _present(measured))


def observed_run(claim: Claim, evidence: Evidence) -> str:
    """The run that a claim observes: its own, else the first that its observation reads."""
    _, observed = sides(evidence, claim)
    return claim.run or next(iter(observed.runs), "")


def _present(found: Evaluation) -> Value | None:
    """The number of a side, where this machine has it."""
    value = found.result
    return value if isinstance(value, Value) and not value.absent else None


def not_a_number(claim: Claim, evidence: Evidence) -> str | None:
    """Why a claim has no number to print with its measurement, or None."""
    if claim.quantifier:
        outcome = evidence.outcome(claim.id)
        shown = (outcome.predicted, outcome.observed)
        if any(one is not None and isinstance(one.number, str) for one in shown):
            return f"{claim.id} compares lists whose elements differ"
        return None
    for side, found in zip(("predicted", "observed"), sides(evidence, claim), strict=True):
        if found.error or found.absent:
            continue  # told where the claim is written, or for this machine alone
        if not isinstance(found.result, Value) or isinstance(found.result.number, str):
            return f"{claim.id} compares no numbers: {side} is {getattr(claim, side)}"
    return None

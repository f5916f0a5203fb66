"""What a rule may rest on: no typed number, no measured time, no tolerance of typed digits.

In: a file of `content/claims/` and the evidence. Out: laws that predict a number which follows from
nothing, laws that read measured times, which another machine changes, and tolerances of rounding
that do not scale with the dtype. What a law may not rest on, an observation may.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.content.claim import Claim, ClaimFile
from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.evidence import units
from generator.evidence.expression import compiled
from generator.evidence.filters import FUNCTIONS
from generator.evidence.regime import dtype_of
from generator.evidence.value import ExpressionError
from generator.evidence.verdicts import sides

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

ROUNDING = 1e-4  # a tolerance this small is one of rounding
LARGE = 0.1  # a tolerance beyond which a law says why
STRUCTURAL = (0, 1)  # no such thing, and the same thing


def mistakes(evidence: Evidence, document: Document[ClaimFile]) -> Iterator[ContentError]:
    """Rules that rest on what they may not rest on."""
    for position, written in enumerate(document.model.claims):
        judged = [evidence.book.claims[name] for name in evidence.book.laws.of_law[written.id]]
        if any(evidence.outcome(claim.id).error for claim in judged):
            continue  # said where the claim is judged
        for at, message in _problems(evidence, written, judged):
            yield document.error(("claims", position, at), message)


def _problems(evidence: Evidence, written: Claim, judged: list[Claim]) -> Iterator[tuple[str, str]]:
    problem = _typed(written)
    if problem:
        yield "predicted", problem
    wide = written.tolerance
    if written.kind == "law" and wide and (wide.share or 0) > LARGE and wide.because is None:
        yield "tolerance", "a law that may be off by more than a tenth says why: because: …"
    for claim in judged:
        found = _timed(evidence, claim) or _rounded(evidence, claim)
        if found:
            yield found
            return


def _typed(written: Claim) -> str | None:
    """Why a claim may not predict with these numbers, or None."""
    try:
        tree = compiled(written.predicted).tree
    except ExpressionError:
        return None  # said where the claim is judged
    if any(map(_is_one, ast.walk(tree))):
        return "divides something by itself; write the number, and constant: what it stands for"
    number = _bare_number(written.predicted)
    if number is None:
        if written.constant:
            return "is no bare number; delete constant:"
        return _fraction(written, tree)
    if written.kind == "law" and number not in STRUCTURAL:
        return (
            f"a law that predicts {number:g} rests on a typed number; derive it from the run's "
            "settings or from epsilon(…), or make it an observation"
        )
    if not written.constant:
        return "a bare number; say what it stands for: constant: no value is wrong"
    return None


def _is_one(node: ast.AST) -> bool:
    """Whether a quotient divides something by itself."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return False
    return ast.dump(node.left) == ast.dump(node.right)


def _bare_number(predicted: str) -> float | None:
    """The number that an expression amounts to without reading anything; None for any other."""
    checked = compiled(predicted)
    if checked.names or "epsilon" in checked.functions:
        return None
    found = checked.evaluate({}, FUNCTIONS)
    return found if isinstance(found, int | float) else None


def _fraction(written: Claim, tree: ast.expr) -> str | None:
    """Why a law may not weigh its prediction with a typed fraction, or None."""
    numbers = (one.value for one in ast.walk(tree) if isinstance(one, ast.Constant))
    typed = [one for one in numbers if isinstance(one, float)]
    if written.kind == "law" and typed:
        return f"a law weighed with {typed[0]:g} has a typed threshold; make it an observation"
    return None


def _timed(evidence: Evidence, claim: Claim) -> tuple[str, str] | None:
    """Which side of a law reads a measured time, and why it may not; or None."""
    if claim.kind != "law":
        return None
    for at, side in zip(("predicted", "observed"), sides(evidence, claim), strict=True):
        for field in side.measured:
            experiment, name, path = field.split(".", 2)
            run = evidence.book.run(f"{experiment}.{name}")
            if path.startswith("timing.") and run is not None and run.nature != "simulated":
                return at, f"a law reads the measured time {field}; make it an observation"
    return None


def _rounded(evidence: Evidence, claim: Claim) -> tuple[str, str] | None:
    """Why a tolerance does not fit the arithmetic that it is about, or None."""
    outcome, tolerance = evidence.outcome(claim.id), claim.tolerance
    if tolerance is None or outcome.observed is None or outcome.observed.unit == units.BYTES:
        return None
    typed = tolerance.relative if tolerance.relative is not None else tolerance.absolute
    if claim.kind == "law" and typed is not None and typed <= ROUNDING:
        said = "a tolerance of rounding follows the dtype: {epsilons: 128, dtype: float32}"
        return "tolerance", said
    runs = [run for name in outcome.runs if (run := evidence.book.run(name))]
    recorded = {dtype for run in runs if (dtype := dtype_of(run))}
    if tolerance.dtype and recorded and tolerance.dtype not in recorded:
        said = f"epsilons of {tolerance.dtype}, and the runs calculate in {', '.join(recorded)}"
        return "tolerance", said
    return None

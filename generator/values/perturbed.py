"""The same evidence with other values in the traces: what stays as it is, no run decides.

In: an `Evidence`. Out: why an expression states nothing of a run, or a claim nothing that a run
could refute. Values are moved as they are read, so that no sum, product or name of a field matters:
up, all to the same, down, to nothing, or apart. A count stays a count and a share a share.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256

from proofbook.generator.content.book import Book
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence, Printable
from proofbook.generator.values.value import Value

INSTEAD = "read it off a run, or name it under `given:` in references.yml"
Move = Callable[[int, float], float]  # of the digits of a path and the number read there


def _apart(bit: int, digits: int, number: float) -> float:
    """Some values grow and the others come to one, by a digit of their paths."""
    return number * 1000 + 1 if digits >> bit & 1 else 1


_MOVES: tuple[Move, ...] = (
    lambda digits, number: number * (2 + digits % 97) + 1 + digits % 89,
    lambda digits, number: 7,
    lambda digits, number: number / (2 + digits % 97),
    lambda digits, number: 0,
    *(partial(_apart, bit) for bit in range(8)),
)


class PerturbedEvidence(Evidence):
    """Evidence in which each value read is changed; `is_all`: given and cited ones too."""

    def __init__(self, book: Book, move: Move, *, is_all: bool) -> None:
        super().__init__(book)
        self._move, self._is_all = move, is_all

    def substitute(self, value: Value) -> Value:
        """A value moved by a hash of its path, type kept; given and cited ones only if all are."""
        if not self._is_all and value.kind in ("given", "cited"):
            return value
        digits = int.from_bytes(sha256((value.path or value.formula).encode()).digest()[:4])
        if isinstance(value.number, str):
            return replace(value, number=f"word {self._move(digits, 1)}")
        number = self._move(digits, value.number)
        number = min(number, 1.0) if value.unit == units.SHARE else number
        return replace(value, number=int(number) if isinstance(value.number, int) else number)

    def _of_claim(self, name: str, claim: object) -> Printable:
        """A claim's prediction is moved too: the run that bears it out is what it states."""
        side = super()._of_claim(name, claim)
        return self.substitute(side) if isinstance(side, Value) and name == "predicted" else side


def why_not_stated(evidence: Evidence, expression: str) -> str | None:
    """Message why a text may not state an expression's result, or None.

    It cannot be printed, or prints the same on perturbed evidence, and so rests on none.
    """
    if problem := evidence.why_unprintable(evidence.evaluate(expression)):
        return problem
    evidence = evidence.reference or evidence  # which has every run
    value = evidence.evaluate(expression).result
    if not (evidence.rests_on_runs and isinstance(value, Value)) or value.origin:
        return None
    for move in range(2):
        again = _moved(evidence, move, is_all=True).evaluate(expression).result
        if isinstance(again, Value) and str(again) != str(value):
            return None
    return f"nothing that a run was given or measured can change {value}; {INSTEAD}"


def counterexample(evidence: Evidence, claim: str) -> Evidence | None:
    """Perturbed evidence on which a claim does not hold; None if there is none."""
    evidence = evidence.reference or evidence
    for move in range(len(_MOVES)):
        changed = _moved(evidence, move, is_all=False)
        if changed.judged(claim).verdict in ("does_not_hold", "not_distinguishable"):
            return changed
    return None


def _moved(evidence: Evidence, move: int, *, is_all: bool) -> PerturbedEvidence:
    book, what = evidence.book, f"moved {move} {is_all}"
    return evidence.cached(what, book, lambda: PerturbedEvidence(book, _MOVES[move], is_all=is_all))

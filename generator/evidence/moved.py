"""The same evidence with other values in the traces: what stays as it is, no run decides.

In: an `Evidence`. Out: why an expression states nothing of a run, or a claim nothing that a run
could refute. Values are moved as they are read, so that no sum, product or name of a field matters:
up, down, to nothing, or all to the same. A count stays a count and a share a share.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from generator.content.book import Book
from generator.evidence import units
from generator.evidence.evaluation import Evidence, Printable
from generator.evidence.value import Value

INSTEAD = "read it off a run, or name it under given: in references.yml"
Move = Callable[[int, float], float]  # of the digits of a path and the number read there


def _some(bit: int) -> Move:
    """Some values grow and the others come to one, by a digit of their paths."""
    return lambda digits, number: number * 1000 + 1 if digits >> bit & 1 else 1


_ALL_UP: Move = lambda digits, number: number * (2 + digits % 97) + 1 + digits % 89  # noqa: E731
_ALIKE: Move = lambda digits, number: 7  # noqa: E731
_DOWN: Move = lambda digits, number: number / (2 + digits % 97)  # noqa: E731
_NONE: Move = lambda digits, number: 0  # noqa: E731
_MOVES = (_ALL_UP, _DOWN, _ALIKE, _NONE, *map(_some, range(8)))


class Moved(Evidence):
    """A book whose values are moved where they are read."""

    def __init__(self, book: Book, move: Move, *, is_all: bool) -> None:
        """Start over a book.

        Args:
            book: whose traces are read.
            move: what becomes of a number.
            is_all: whether also what a run was given, and what is cited, is moved.
        """
        super().__init__(book)
        self._move, self._is_all = move, is_all

    @property
    def reference(self) -> None:
        """None: what two machines measured decides nothing."""
        return

    def moved(self, value: Value) -> Value:
        """What is read instead of a value."""
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
        return self.moved(side) if isinstance(side, Value) and name == "predicted" else side


def stays(evidence: Evidence, expression: str) -> str | None:
    """Why the number of an expression stands in no run, no setting and no list; or None."""
    evidence = evidence.reference or evidence  # which has every run
    value = evidence.evaluate(expression).result
    if not isinstance(value, Value) or value.origin:
        return None
    for move in (_ALL_UP, _ALIKE):
        again = _moved(evidence, move, is_all=True).evaluate(expression).result
        if isinstance(again, Value) and not _is_same(again.number, value.number):
            return None
    return f"nothing that a run was given or measured can change {value}; {INSTEAD}"


def refuted(evidence: Evidence, claim: str) -> Evidence | None:
    """Evidence on which a claim does not hold, though it reads as many values; None in vain."""
    evidence = evidence.reference or evidence
    for move in _MOVES:
        again = _moved(evidence, move, is_all=False)
        if again.outcome(claim).verdict in ("does_not_hold", "not_distinguishable"):
            return again
    return None


def _moved(evidence: Evidence, move: Move, *, is_all: bool) -> Moved:
    name = f"moved {_MOVES.index(move)} {is_all}"
    return evidence.once(name, evidence.book, lambda: Moved(evidence.book, move, is_all=is_all))


def _is_same(one: float | str, other: float | str) -> bool:
    """Whether two are equal but for the rounding of floating-point arithmetic."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return math.isclose(one, other, rel_tol=1e-9)

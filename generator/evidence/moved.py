"""The same evidence with other values in the traces: what stays as it is, no run decides.

In: an `Evidence`. Out: why an expression states nothing of a run, or a claim nothing that a run
could refute. Values are moved as they are read, so that no sum, product or name of a field matters:
up, down, to nothing, or all to the same. A count stays a count and a share a share.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from hashlib import sha256

from generator.content.book import Book
from generator.evidence import units
from generator.evidence.evaluation import Evidence, Printable
from generator.evidence.value import Value

Move = Callable[[int, float], float]  # of the digits of a path and the number read there
_MOVES: tuple[Move, ...] = (
    lambda digits, number: number * (2 + digits % 97) + 1 + digits % 89,
    lambda digits, number: number / (2 + digits % 97),
    lambda digits, number: number * (digits % 2) * 1000 + digits % 2,
    lambda digits, number: number * (1 - digits % 2) * 1000 + 1 - digits % 2,
    lambda digits, number: 0,
    lambda digits, number: 7,
)


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

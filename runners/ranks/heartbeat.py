"""What a rank is doing now, in a few bytes that outlive it: the launcher's view into the ranks.

Each rank maps a small file and overwrites it at every phase; the launcher reads it while the rank
works, hangs, or is dead. Writing costs less than a microsecond and no system call. No torch.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_WORD = 8  # bytes of each of the words before the names: beats, step, the phase's number
_NUM_WORDS = 3
_NUM_NAMES = 64
_NAME_BYTES = 40
_NAMES_AT = _NUM_WORDS * _WORD
_LAYOUT = struct.Struct("<Qqq")


@dataclass(frozen=True)
class Beat:
    """The last thing a rank said: how often it spoke, its step (-1 before the first), its phase."""

    count: int
    step: int
    phase: str


class Heart:
    """The writing side, held by a rank.

    A phase's name is written when it is first met; from then on a beat stores three numbers.
    """

    def __init__(self, path: Path) -> None:
        size = _NAMES_AT + _NUM_NAMES * _NAME_BYTES
        path.write_bytes(b"\0" * size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._words = memoryview(self._map)[:_NAMES_AT].cast("q")
        self._numbers: dict[str, int] = {}
        self._count = 0

    def beat(self, phase: str, step: int) -> None:
        """Say what the rank does now."""
        number = self._numbers.get(phase)
        words = self._words
        words[2] = self._name(phase) if number is None else number
        words[1] = step
        self._count += 1
        words[0] = self._count

    def _name(self, phase: str) -> int:
        """A number for a phase that was not met before; past the last, the last is named anew."""
        number = min(len(self._numbers), _NUM_NAMES - 1)
        if len(self._numbers) >= _NUM_NAMES:
            self._numbers = {name: n for name, n in self._numbers.items() if n != number}
        start = _NAMES_AT + number * _NAME_BYTES
        self._map[start : start + _NAME_BYTES] = struct.pack(f"{_NAME_BYTES}s", phase.encode())
        self._numbers[phase] = number
        return number


def listen(path: Path) -> Beat:
    """The last beat of a rank; of one that has not spoken yet, the start."""
    try:
        written = path.read_bytes()
        count, step, number = _LAYOUT.unpack_from(written)
    except (OSError, struct.error):
        return Beat(0, -1, "start")
    start = _NAMES_AT + number * _NAME_BYTES
    name = written[start : start + _NAME_BYTES].rstrip(b"\0").decode(errors="replace")
    return Beat(count, step, name) if count else Beat(0, -1, "start")

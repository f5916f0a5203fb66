"""The heartbeat of a rank: its phase and step in a few bytes that outlive it, for the launcher.

Each rank maps a small file and overwrites it at every phase; the launcher reads it while the rank
works, hangs, or is dead. Writing costs less than a microsecond and no system call. No torch.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = struct.Struct("<Qq40s")


@dataclass(frozen=True)
class Beat:
    """A heartbeat: how many a rank has had, its step (-1 before the first) and its phase."""

    count: int
    step: int
    phase: str


FIRST_BEAT = Beat(0, -1, "start")


class Heart:
    """The writing side, held by a rank."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(_LAYOUT.pack(0, -1, b"start"))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._count = 0

    def beat(self, phase: str, step: int) -> None:
        """Write the phase and the step in which the rank now is."""
        self._count += 1
        _LAYOUT.pack_into(self._map, 0, self._count, step, phase.encode())


def last_beat(path: Path) -> Beat:
    """A `Beat` (count, step, phase) from a rank's file; `FIRST_BEAT` where it is missing or cut."""
    try:
        count, step, phase = _LAYOUT.unpack(path.read_bytes())
    except (OSError, struct.error):
        return FIRST_BEAT
    return Beat(count, step, phase.rstrip(b"\0").decode(errors="replace"))

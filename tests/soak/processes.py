"""Processes as /proc shows them: who is below whom, and who is left. Linux only."""

from __future__ import annotations

import time
from pathlib import Path

PATIENCE_SECONDS = 5  # what a rank's end may take


def parents() -> dict[int, int]:
    """Process id → its parent's, of all that are not dead already."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(stat.parent.name)] = int(fields[1])
    return found


def below(pid: int) -> list[set[int]]:
    """Children, grandchildren, … of a process."""
    known = parents()
    generations: list[set[int]] = []
    current = {pid}
    while current := {child for child, parent in known.items() if parent in current}:
        generations.append(current)
    return generations


def none_left(pids: set[int]) -> bool:
    """Whether these have all ended, or do within seconds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if not pids & set(parents()):
            return True
        time.sleep(0.05)
    return False

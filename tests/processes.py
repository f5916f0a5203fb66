"""The processes of a command, as /proc shows them. Linux only."""

from __future__ import annotations

from pathlib import Path


def marked(place: Path) -> set[int]:
    """Processes whose environment names this place: a command and all that came of it."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(place).encode() in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


def parent(pid: int) -> int | None:
    """The process that started another; None where that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None

"""Commands in processes of their own; what /proc shows of them is for Linux only."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call Python in the project's root, with these variables beside this process's own."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


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

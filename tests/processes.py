"""Commands in processes of their own; what /proc shows of them is for Linux only."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Lets commands find the tests' own experiments too.
OWN_EXPERIMENTS = {"PROOFBOOK_EXPERIMENTS": str(ROOT / "tests" / "runners" / "experiments")}


def ran(
    words: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, and what it said."""
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call Python in the project's root, with these variables beside this process's own."""
    return ran([sys.executable, *words], ROOT, os.environ | variables)


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

"""What a published book shows and offers: machines and traces of the commit, and its sources."""

from __future__ import annotations

import subprocess
from pathlib import Path

from generator.content.shelf import REFERENCE


def machines(content: Path) -> frozenset[str]:
    """The folders of `traces/` that the current commit holds.

    Where there is no repository, as in an archive of the sources, nobody measured on: the reference
    machine's alone.

    Args:
        content: the folder of content.
    """
    traces = content / "traces"
    held = _git(traces, "ls-tree", "-r", "-z", "--name-only", "HEAD", "./")
    if held is None:
        return frozenset(path.name for path in traces.glob(REFERENCE))
    paths = map(Path, held.decode().split("\0"))
    return frozenset(path.parent.as_posix() for path in paths if path.name == "machine.json")


def sources(content: Path) -> bytes:
    """The files of the commit as a zip; empty where there is no repository.

    Args:
        content: the folder of content, in the project's own.
    """
    return _git(content.parent, "archive", "--format=zip", "--prefix=proofbook/", "HEAD") or b""


def _git(folder: Path, *command: str) -> bytes | None:
    """What a command of git prints; None where there is no repository."""
    try:
        return subprocess.run(["git", *command], cwd=folder, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None

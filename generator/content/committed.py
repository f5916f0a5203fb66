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
    held = _told_by_git(traces, "ls-tree", "-r", "-z", "--name-only", "HEAD", "./")
    if held is None:
        return frozenset(path.name for path in traces.glob(REFERENCE))
    return frozenset(path.parent.as_posix() for path in held if path.name == "machine.json")


def changed(content: Path) -> list[str]:
    """The files of committed machines that differ from the commit, relative to `traces/`."""
    differing = _told_by_git(content / "traces", "diff", "-z", "--relative", "--name-only", "HEAD")
    shown = machines(content)
    return sorted(str(path) for path in differing or () if path.parent.as_posix() in shown)


def sources(content: Path) -> bytes:
    """The files of the commit as a zip; empty where there is no repository.

    Args:
        content: the folder of content, in the project's own.
    """
    return _git(content.parent, "archive", "--format=zip", "--prefix=proofbook/", "HEAD") or b""


def _told_by_git(folder: Path, *command: str) -> list[Path] | None:
    """The paths that a command of git lists; None where there is no repository."""
    told = _git(folder, *command)
    return None if told is None else [Path(name) for name in told.decode().split("\0") if name]


def _git(folder: Path, *command: str) -> bytes | None:
    """What a command of git prints; None where there is no repository."""
    try:
        return subprocess.run(["git", *command], cwd=folder, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None

"""What a published book may show: the machines of the commit, with the traces that it holds."""

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


def _told_by_git(folder: Path, *command: str) -> list[Path] | None:
    """The paths that a command of git lists; None where there is no repository."""
    try:
        done = subprocess.run(
            ["git", *command], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return [Path(name) for name in done.stdout.split("\0") if name]

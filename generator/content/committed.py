"""Which machines a published book may show: those whose folders stand in the commit."""

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
    command = ["git", "ls-tree", "-r", "-z", "--name-only", "HEAD", "./"]
    try:
        done = subprocess.run(command, cwd=traces, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return frozenset(path.name for path in traces.glob(REFERENCE))
    held = (Path(name) for name in done.stdout.split("\0"))
    return frozenset(path.parent.as_posix() for path in held if path.name == "machine.json")

"""One build of a folder at a time: a second one says so, and waits.

The kernel keeps the lock for the process that took it, so it ends with that process, however that
ends. It is no lock of `flock`: a process forked for a page would hold that one as well.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"  # MkDocs leaves out files that begin with a dot


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only process that builds these pages.

    Args:
        folder: where the pages go, such as `site/pages`.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="ascii") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            if sys.stderr is not None:
                sys.stderr.write(f"{folder}: waiting for another build (process {file.read()})\n")
                sys.stderr.flush()
            fcntl.lockf(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield

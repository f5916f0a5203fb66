"""The scratch folder of a launcher, and the removal of those whose launcher was killed.

In: nothing. Out: a folder in the system's place for temporary files, on which its owner holds a
lock. A folder whose lock is free belongs to nobody alive. What torch compiles for this process and
its children goes there, too: its compiler makes a folder as soon as it is loaded. No torch.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from runners.system import stopping

CLEAN_SECONDS = 2.0  # the longest that files of killed ranks may take to go
POLL_SECONDS = 0.02
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
PREFIX = "proofbook-scratch-"


class Scratch:
    """A folder that lives as long as its owner, or until the next launcher starts.

    It goes, too, where its owner is stopped while a module is loaded, when nothing unwinds.
    """

    def __init__(self) -> None:
        sweep()
        lock = None
        while lock is None:  # another launcher may sweep the folder before it is locked
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            lock = _locked(self.path)
        self._lock = lock
        stopping.at_end.append(self.remove)
        self._compiled = str(self.path / "compiled")
        os.environ.setdefault(COMPILED, self._compiled)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def folder(self) -> Path:
        """A new folder inside."""
        return Path(tempfile.mkdtemp(dir=self.path))

    def remove(self) -> None:
        """Remove the folder with all that is in it; calling it again does nothing."""
        if os.environ.get(COMPILED) == self._compiled:
            del os.environ[COMPILED]
        end = time.monotonic() + CLEAN_SECONDS
        while self.path.exists() and time.monotonic() < end:  # a dying rank may still write
            shutil.rmtree(self.path, ignore_errors=True)
            time.sleep(POLL_SECONDS)
        with suppress(OSError):
            os.close(self._lock)
        self._lock = -1
        with suppress(ValueError):
            stopping.at_end.remove(self.remove)


def sweep() -> list[str]:
    """Remove the folders of this user whose owners are dead; their names."""
    swept = []
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            swept.append(path.name)
    return swept


def _locked(path: Path) -> int | None:
    """The descriptor of a folder that this process now holds a lock on; None where it cannot."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:  # another user's, or gone by now
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.getuid() and path.exists():
            return descriptor
    except OSError:  # its owner lives
        pass
    os.close(descriptor)
    return None

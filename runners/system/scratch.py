"""The scratch folder of a launcher, and the removal of those whose launcher was killed.

In: nothing. Out: a folder in the system's place for temporary files. Its name says who owns it:
the host, the process id, and when that process started, so that neither another host that shares
the folder nor a process that got the same id later is taken for the owner. The owner also holds a
lock on the folder, which counts where processes do not see each other. What torch compiles for this
process and its children goes there, too: its compiler makes a folder as soon as it is loaded. No
torch.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import stat
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path

from runners.system import processes, stopping

CLEAN_SECONDS = 2.0  # the longest that files of killed ranks may take to go
POLL_SECONDS = 0.02
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_OURS = re.compile(r"proofbook-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-\w+")


def _host() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


class Scratch:
    """A folder that lives as long as its owner, or until the next launcher starts.

    It goes, too, where its owner is stopped while a module is loaded, when nothing unwinds.
    """

    def __init__(self) -> None:
        sweep()
        pid = os.getpid()
        owner = f"{_host()}-{pid}-{processes.start_ticks(pid) or 0}"
        self.path = Path(tempfile.mkdtemp(prefix=f"proofbook-{owner}-"))
        stopping.at_end.append(self.remove)
        self._lock = os.open(self.path, os.O_RDONLY)
        with suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    """Remove the folders of this user whose launchers on this host are dead; their names."""
    swept = []
    for path in Path(tempfile.gettempdir()).glob("proofbook-*"):
        match = _OURS.fullmatch(path.name)
        if match is None or match["host"] != _host():
            continue
        if processes.lives(int(match["pid"]), int(match["start"])) or not _is_free(path):
            continue
        shutil.rmtree(path, ignore_errors=True)
        swept.append(path.name)
    return swept


def _is_free(path: Path) -> bool:
    """Whether it is a real folder, our user's own, that nobody holds a lock on."""
    try:
        seen = path.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # folders cannot be locked here: the owner's name has to do
    finally:
        os.close(descriptor)
    return True

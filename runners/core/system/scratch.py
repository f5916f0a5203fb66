"""The scratch folder of a launcher.

In: nothing. Out: a folder in the system's place for temporary files; that of a killed launcher is
the system's to remove. What torch compiles for this process and its children goes there, too: its
compiler makes a folder as soon as it is loaded. No torch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from proofbook.runners.system import stopping

CLEAN_SECONDS = 2.0  # the longest that files of killed ranks may take to go
POLL_SECONDS = 0.02
COMPILED = "TORCHINDUCTOR_CACHE_DIR"


class Scratch:
    """A folder that is removed with its owner, also where a signal stops that while it loads."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="proofbook-"))
        stopping.at_end.append(self.remove)
        self._compiled = str(self.path / "compiled")
        os.environ.setdefault(COMPILED, self._compiled)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def folder(self) -> Path:
        """Make a new folder inside the scratch folder."""
        return Path(tempfile.mkdtemp(dir=self.path))

    def remove(self) -> None:
        """Remove the folder, trying for up to 2 s, its environment variable and `at_end` hook."""
        if os.environ.get(COMPILED) == self._compiled:
            del os.environ[COMPILED]
        end = time.monotonic() + CLEAN_SECONDS
        while self.path.exists() and time.monotonic() < end:  # a dying rank may still write
            shutil.rmtree(self.path, ignore_errors=True)
            time.sleep(POLL_SECONDS)
        with suppress(ValueError):
            stopping.at_end.remove(self.remove)

"""gloo's own threads: wait until they have given back what collectives that ended had used.

A collective ends for the rank before the thread that carried it out frees its buffers. How
much later depends on when that thread next gets a processor, which on a busy machine takes long.
A metered pass therefore allocates only when none of these threads has work left, so that a peak
does not depend on what else the machine does.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

NAME = "pt_gloo_runloop"  # as torch names them
LOOK_SECONDS = 0.001
GUESS_SECONDS = 0.02  # where the kernel does not show threads


class GlooThreads:
    """The threads of gloo in a process, as found at the last look."""

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._tasks = process / "task"
        self._found: list[str] = []

    def look(self) -> None:
        """Find the threads again: each process group has its own."""
        tasks = self._tasks.iterdir() if self._tasks.exists() else ()
        self._found = [path for path in (f"{task}/stat" for task in tasks) if _state(path)]

    def wait_until_idle(self) -> None:
        """Return once none of the threads runs or is ready to run.

        A thread that waits for another rank does neither, so a collective under way ends no wait
        late: only one that moves bytes, or has yet to free its buffers, does.
        """
        while any(_state(path) in ("R", "D") for path in self._found):
            time.sleep(LOOK_SECONDS)


def wait_until_idle(process: Path = Path("/proc/self")) -> None:
    """Return once no thread of gloo runs or would run; call it with no collective in flight."""
    if not (process / "task").exists():
        time.sleep(GUESS_SECONDS)
    threads = GlooThreads(process)
    threads.look()
    threads.wait_until_idle()


def _state(path: str) -> str:
    """The scheduler's letter for a thread of gloo; empty for another one, or one that has ended."""
    with suppress(OSError), open(path, encoding="ascii") as stat:  # noqa: PTH123
        name, _, rest = stat.read().rpartition(")")
        return rest.split(maxsplit=1)[0] if name.partition("(")[2] == NAME else ""
    return ""

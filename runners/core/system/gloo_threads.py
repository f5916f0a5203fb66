"""gloo's own threads: their names, and a wait until they have freed what collectives used.

A collective ends for the rank before the thread that carried it out frees its buffers. How
much later depends on when that thread next gets a processor, which on a busy machine takes long.
A metered pass therefore allocates only when none of these threads has work left, so that a peak
does not depend on what else the machine does.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

RUN_LOOP = "pt_gloo_runloop"  # as torch names those that carry collectives out, two a group
# One a group wakes up a hundred times a second to look at its sockets, also while nothing comes.
TCP_LOOP = "gloo_tcp_loop"
POLL_SECONDS = 0.001
GUESS_SECONDS = 0.02  # where the kernel does not show threads
HEAD_BYTES = 64  # of a thread's `stat`: its number, its name and its state
_IS_RUN_LOOP = f"({RUN_LOOP}) ".encode()


class GlooThreads:
    """The threads of a process that carry out its collectives, as of the last `refresh`.

    Their files in `/proc` stay open while this object lives: to open one takes ten times as long
    as to read it, and a metered pass reads them before each operation.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._tasks = process / "task"
        self._files: list[int] = []

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.pop())

    __del__ = close

    def refresh(self) -> None:
        """Reopen the `stat` file of each gloo run loop: every process group has its own."""
        self.close()
        for stat in self._tasks.glob("*/stat"):
            with suppress(OSError):  # it has ended
                if _IS_RUN_LOOP in stat.read_bytes():
                    self._files.append(os.open(stat, os.O_RDONLY))

    def wait_until_idle(self) -> None:
        """Return once none of the threads runs or is ready to run.

        A thread that waits for another rank does neither, so a collective under way ends no wait
        late: only one that moves bytes, or has yet to free its buffers, does.
        """
        while any(_is_busy(file) for file in self._files):
            time.sleep(POLL_SECONDS)


def wait_until_idle(process: Path = Path("/proc/self")) -> None:
    """Wait until gloo's run loops idle, 20 ms without /proc; no collective may be in flight."""
    if not (process / "task").exists():
        time.sleep(GUESS_SECONDS)
    threads = GlooThreads(process)
    threads.refresh()
    threads.wait_until_idle()


def _is_busy(file: int) -> bool:
    """Whether a thread of gloo runs, is ready to run, or waits for the kernel."""
    try:
        head = os.pread(file, HEAD_BYTES, 0)
    except OSError:  # it has ended
        return False
    return head.partition(_IS_RUN_LOOP)[2][:1] in (b"R", b"D")

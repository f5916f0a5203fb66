"""Processes as the kernel shows them: whether one lives, works, or waits for a turn.

In: process ids. Out: what `/proc` says of them; None, or the cautious answer, where there is no
`/proc`. No torch.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from proofbook.runners.core.system import gloo_threads

_SET_PARENT_DEATH_SIGNAL = 1  # of prctl
# Fields of /proc/<pid>/stat behind the command, which may itself hold spaces and brackets.
_STATE, _USER_TICKS, _SYSTEM_TICKS, _START = 0, 11, 12, 19
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# A thread that takes no more of a processor only wakes up now and then while it waits.
IDLE_SHARE = 0.02
# NCCL waits by spinning, on the device and in the process: processor time says nothing there, nor
# where the kernel does not tell it. Only `restart` does, which comes with signs of life. So what
# has an accelerator is given so many times as long, and what runs on other systems than Linux,
# where each rank loads torch for itself, still longer.
SPINNING, UNTOLD = 5.0, 10.0
READ_SECONDS = 0.1  # between two looks at the threads of a process: they disturb what is timed


class Thread(NamedTuple):
    """A thread of a process, as the kernel shows it."""

    name: str
    state: str  # R: runs or is ready to; D: waits for a disk; S: sleeps; …
    ticks: int  # of a processor that it has taken

    @property
    def is_starved(self) -> bool:
        """Whether it would work if it could; what looks at gloo's sockets wakes up without work."""
        return self.state in "RD" and self.name != gloo_threads.TCP_LOOP


def threads(pid: int) -> dict[int, Thread]:
    """By id: each `Thread` of a process; without /proc none, but for this process a stand-in."""
    listed = {}
    with suppress(OSError):  # where the process ends while its threads are listed
        for path in Path(f"/proc/{pid}/task").glob("*/stat"):
            if stat := _stat(path):
                name, fields = stat
                ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
                listed[int(path.parent.name)] = Thread(name, fields[_STATE], ticks)
    if not listed and pid == os.getpid():
        return {0: Thread("", "S", int(time.process_time() * TICKS_PER_SECOND))}
    return listed


class IdleTime:
    """For how long a process has been idle: it neither works nor waits for a processor.

    Each thread is judged by its own processor time, so that many that only wake up now and then,
    as those of gloo do, are not taken for one that works. A process that `spins` waits for an
    accelerator. The thread `observer`, which reads this, is no part of its work.
    """

    def __init__(self, pid: int, *, spins: bool = False, observer: int = 0) -> None:
        self._pid, self._spins, self._observer = pid, spins, observer
        self._threads: dict[int, Thread] = {}
        self._ticks_before: dict[int, int] = {}  # of each thread, when one was last at work
        self._read_at = 0.0
        self.restart()

    def restart(self) -> None:
        """Count from now on: the process has shown otherwise that it is at work."""
        self._since = time.monotonic()

    @property
    def worked_seconds(self) -> float:
        """Processor time of the threads that there are."""
        return sum(thread.ticks for thread in self._threads.values()) / TICKS_PER_SECOND

    def exceeds(self, seconds: float) -> bool:
        """Whether it idled for over `seconds`, or 5 or 10 times that where no thread is read.

        Call it regularly: work, or a wait for a processor, is noticed when it is called.
        """
        now = time.monotonic()
        if not self._threads:
            seconds *= SPINNING if self._spins else UNTOLD
        may_be_idle = now - self._since > seconds
        if not self._spins and (may_be_idle or now - self._read_at >= READ_SECONDS):
            self._read(now)
        if now - self._since <= seconds:
            return False
        if any(thread.is_starved for thread in self._threads.values()):
            self._since = now
            return False
        return True

    def _read(self, now: float) -> None:
        self._threads, self._read_at = threads(self._pid), now
        self._threads.pop(self._observer, None)
        ticks = {number: thread.ticks for number, thread in self._threads.items()}
        most = max(1.0, IDLE_SHARE * (now - self._since) * TICKS_PER_SECOND)
        if any(ticks[number] - self._ticks_before.get(number, 0) > most for number in ticks):
            self._since, self._ticks_before = now, ticks


def are_idle(times: Iterable[IdleTime], seconds: float) -> bool:
    """Whether each of some processes has been idle for longer than this; all are looked at."""
    return all([idle_time.exceeds(seconds) for idle_time in times])  # noqa: C419


def _stat(path: Path) -> tuple[str, list[str]] | None:
    """Name and further fields of a process or thread; None once it is gone, or without /proc."""
    try:
        head, _, fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")
    except OSError:
        return None
    return head.partition("(")[2], fields.split()


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None where the system does not say.

    A process id is given again to another process, but never with the same start.
    """
    stat = _stat(Path(f"/proc/{pid}/stat"))
    return int(stat[1][_START]) if stat else None


def lives(pid: int, start: int) -> bool:
    """Whether the process with this id still is the one that started then."""
    stat = _stat(Path(f"/proc/{pid}/stat"))
    return stat is not None and int(stat[1][_START]) == start and stat[1][_STATE] != "Z"


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that ends; Linux only.

    The kernel means the thread of the parent that started this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the kernel was asked
            os._exit(1)

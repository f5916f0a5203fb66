"""Processes as the kernel shows them: whether one lives, works, or waits for a turn.

In: process ids. Out: what `/proc` says of them; None, or the cautious answer, where there is no
`/proc`. No torch.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1  # of prctl
# Fields of /proc/<pid>/stat behind the command, which may itself hold spaces and brackets.
_STATE, _USER_TICKS, _SYSTEM_TICKS, _START = 0, 11, 12, 19


def _stat(path: Path) -> list[str] | None:
    """The fields of a process or a thread; None once it is gone, or where there is no /proc."""
    try:
        return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def cpu_ticks(pid: int) -> int | None:
    """Processor time of a process, in ticks; None where the kernel does not say."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]) if fields else None


def wants_processor(pid: int) -> bool:
    """Whether a thread of a process would run if it could: on a busy machine some get no turn."""
    threads = (_stat(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat"))
    return any(fields is not None and fields[_STATE] in "RD" for fields in threads)


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None where the system does not say.

    A process id is given again to another process, but never with the same start.
    """
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return int(fields[_START]) if fields else None


def lives(pid: int, start: int) -> bool:
    """Whether the process with this id still is the one that started then."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return fields is not None and int(fields[_START]) == start and fields[_STATE] != "Z"


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that ends; Linux only.

    The kernel means the thread of the parent that started this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the kernel was asked
            os._exit(1)

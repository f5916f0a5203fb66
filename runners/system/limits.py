"""What a shell's limits (`ulimit`) do to us, told as such.

In: the words of an error. Out: one line that names the limit behind it and says what to do; None
where no limit can be. A limit that is too low meets us anywhere, as any library's error: torch
cannot be mapped, a thread cannot start, a pipe cannot open. No torch.
"""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from runners.system import processes

MAX_WORDS = 200  # characters kept of what a library said


@dataclass(frozen=True)
class _Limit:
    """One of `ulimit`'s: how it is told, and what libraries say when they meet it."""

    option: str
    number: int
    unit_bytes: int | None  # None: it counts, and not bytes
    means: str
    symptoms: tuple[str, ...]


_THREADS = ("start new thread", "pthread_create", "resource temporarily unavailable")
_LIMITS = (
    _Limit("-n", resource.RLIMIT_NOFILE, None, "open files", ("too many open files",)),
    _Limit(
        "-v",
        resource.RLIMIT_AS,
        1024,
        "KiB of addresses",
        (
            "failed to map segment",
            "cannot allocate memory",
            "can't allocate memory",
            "out of memory",
            "memoryerror",
            "bad_alloc",
            *_THREADS,
        ),
    ),
    _Limit("-u", resource.RLIMIT_NPROC, None, "processes and threads", _THREADS),
    _Limit("-f", resource.RLIMIT_FSIZE, 1024, "KiB in a file", ("file too large",)),
    _Limit("-t", resource.RLIMIT_CPU, None, "seconds of processor time", ("sigxcpu",)),
)


class LimitError(OSError):
    """A limit of the shell is too low for what a command is about to do; the message says which."""


def want_files(fewest: int) -> None:
    """Refuse to go on where too few files may be open: what then fails blames something else.

    Raises:
        LimitError: with the line for a person.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < fewest:
        raise LimitError(blamed("too many open files"))


def blamed(words: str) -> str | None:
    """The line that names the limit behind an error, from what it said; None where there is none.

    Several limits can show in the same way: the first that is set is named.
    """
    said = words.lower()
    for limit in _LIMITS:
        allowed = _allowed(limit)
        if allowed is not None and any(symptom in said for symptom in limit.symptoms):
            return (
                f"`ulimit {limit.option}` allows {allowed} {limit.means}, which is too few "
                f"({_last_line(words)}); raise it with `ulimit {limit.option} {_more(limit)}`, "
                "and run again"
            )
    if any(symptom in said for symptom in _THREADS):
        return (
            f"no further process or thread may start here ({_last_line(words)}); let the container "
            "have more (pids.max), and run again"
        )
    return None


def refuses_addresses(requested_bytes: int | None) -> bool:
    """Whether it was `ulimit -v` that refused memory to this process, and no budget.

    Args:
        requested_bytes: what could not be allocated; where nobody says, little.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return False
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        peak = int(status.partition("VmPeak:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return False
    return peak + (requested_bytes or allowed // 20) > allowed


def explain(command: str) -> None:
    """Tell what limits make of loading this command, in one line with exit code 2."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        line = blamed(f"{kind.__name__}: {error}")
        if line is None:
            sys.__excepthook__(kind, error, trace)
            return
        sys.stderr.write(f"{command}: {line}\n")
        sys.stderr.flush()
        sys.exit(2)

    sys.excepthook = hook


def _allowed(limit: _Limit) -> int | None:
    """What a limit allows; None where there is none, or where its user is far from it."""
    soft, _ = resource.getrlimit(limit.number)
    if limit.number == resource.RLIMIT_NPROC:  # it is set nearly everywhere
        num_threads = processes.num_threads(os.getuid())
        if num_threads and soft > 2 * num_threads:
            return None
    return None if soft == resource.RLIM_INFINITY else soft // (limit.unit_bytes or 1)


def _more(limit: _Limit) -> str:
    soft, hard = resource.getrlimit(limit.number)
    if (
        hard == resource.RLIM_INFINITY or hard <= soft
    ):  # only root can then: it is told all the same
        return "unlimited" if limit.unit_bytes else str(4 * soft)
    return str(hard // (limit.unit_bytes or 1))


def _last_line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[-1].rstrip(": ")[:MAX_WORDS] if lines else "nothing was said"

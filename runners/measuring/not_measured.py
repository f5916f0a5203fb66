"""Which failures say nothing about an experiment, because the machine or a person caused them.

In: how the ranks of a pass ended, and what was declared. Out: the cause in one line, or None where
the end is evidence. Signals that a process raises against itself by a fault (SIGABRT, SIGSEGV, …)
are evidence; those that only another process or the kernel sends are not, unless the run declared
exactly this death. What fails before the strategy of the run is called, while ranks find each other
and warm up, is the same for all experiments and evidence of none. No torch.
"""

from __future__ import annotations

import errno
import socket
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from runners.plans.experiment import PassName, RunPlan
from runners.system.errors import FixableError
from runners.traces.outcome import RankOutcome
from runners.traces.records import Failure

NO_REPORT = 70  # the exit code of a rank that could not even write down how it failed
OWN_FAULTS = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
LACKS = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "no space left under the disk quota",
    errno.EMFILE: "no file handles left",
    errno.ENFILE: "no file handles left",
}
_LACKS_IN_WORDS = {
    "No space left on device": LACKS[errno.ENOSPC],
    "Disk quota exceeded": LACKS[errno.EDQUOT],
    "Too many open files": LACKS[errno.EMFILE],
}
_NO_INTERFACE = "ranks find no network interface: bring loopback up with `ip link set lo up`"
_NO_NAME = "a host name does not resolve: put it into /etc/hosts"
_NO_PORT = "no port is free that ranks need: end the process that uses it (`ss -tanp`)"
_REMEDIES = {
    "Unable to find interface": _NO_INTERFACE,
    "Unable to find address": _NO_INTERFACE,
    "Network is unreachable": _NO_INTERFACE,
    "Cannot assign requested address": _NO_PORT,
    "name resolution": _NO_NAME,
    "Name or service not known": _NO_NAME,
    "No address associated with hostname": _NO_NAME,
    "Address already in use": _NO_PORT,
    "EADDRINUSE": _NO_PORT,
    "Read-only file system": "a folder cannot be written: set TMPDIR to one that can",
}
_SEE = "; run again with PROOFBOOK_STDERR=1, which shows all that ranks say"
_BEFORE_IT_BEGAN = ("start", "warm_up")
LOOPBACK_SECONDS = 1.0  # a connection takes some microseconds
PROBE_BYTES = 1 << 20  # more than any record of a rank takes


class NotMeasuredError(FixableError, RuntimeError):
    """A run that failed for want of the machine; the message is the cause, one line."""

    exit_code = 1


class UnfinishedError(RuntimeError):
    """An experiment of which some runs could not be measured.

    Attributes:
        causes: a line for each of these runs.
        is_lasting: nothing else can be measured either until somebody intervenes.
    """

    def __init__(self, causes: list[str], *, is_lasting: bool) -> None:
        super().__init__("; ".join(causes))
        self.causes = causes
        self.is_lasting = is_lasting


def lack(error: OSError, where: Path) -> str | None:
    """What the machine lacked when a call failed, and where; None where it lacked nothing.

    Args:
        error: of the call.
        where: the folder it worked in.
    """
    what = LACKS.get(error.errno or 0)
    return f"{what} in {where}" if what and what.startswith("no space") else what


def is_full(folder: Path) -> bool:
    """Whether a folder takes no further file of the size that ranks write."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def _loopback_error() -> OSError | None:
    """What prevents processes of this machine from reaching each other; None where nothing does."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=LOOPBACK_SECONDS),
        ):
            return None
    except OSError as error:
        return error


def cause(
    plan: RunPlan,
    pass_name: PassName,
    outcomes: Sequence[RankOutcome],
    scratch: Path,
    *,
    is_limited: bool = False,
) -> str | None:
    """Why a pass that failed is no evidence; None where it is, and where nothing failed.

    Args:
        plan: the run as declared.
        pass_name: which pass.
        outcomes: one a rank.
        scratch: the folder in which the ranks wrote.
        is_limited: the ranks of this pass have a limit of memory although none was declared.
    """
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    unexpected = [one for one in failures if not _is_declared(plan, one)]
    if not unexpected:
        return None
    in_words = [words for one in unexpected if (words := _lack_in(one, scratch))]
    if in_words:
        return in_words[0]
    if not any(_is_as_declared(plan, one) for one in outcomes):
        if is_full(scratch):
            return _no_space(scratch)
        if error := _loopback_error():
            return f"{_NO_INTERFACE}, and run again (127.0.0.1: {error.strerror or error})"
    budgeted = pass_name == "budgeted" or is_limited or plan.expected == "out_of_memory"
    return next(
        chain(_from_outside(unexpected, has_budget=budgeted), _before_it_began(unexpected)), None
    )


def _is_declared(plan: RunPlan, failure: Failure) -> bool:
    return plan.expected_death is not None and plan.expected_death.is_that_of(failure)


def _is_as_declared(plan: RunPlan, outcome: RankOutcome) -> bool:
    if outcome.failure is None or plan.expected == "died":
        return outcome.failure is not None and _is_declared(plan, outcome.failure)
    return outcome.status == plan.expected


def _no_space(scratch: Path) -> str:
    """Ranks write into a folder of their pass, in one of the launcher, in the temporary folder."""
    return f"{LACKS[errno.ENOSPC]} in {scratch.parent.parent}"


def _lack_in(failure: Failure, scratch: Path) -> str | None:
    """What a failure's own words say was lacking."""
    for words, what in _LACKS_IN_WORDS.items():
        if words in failure.message:
            is_here = str(scratch) in failure.message or is_full(scratch)
            if what == LACKS[errno.ENOSPC] and is_here:
                return _no_space(scratch)
            return f"{what}: rank {failure.rank} in {failure.phase}: {failure.message}"
    for words, remedy in _REMEDIES.items():
        if words in failure.message:
            return (
                f"{remedy}, and run again (rank {failure.rank} in {failure.phase}: "
                f"{failure.message})"
            )
    return None


def _from_outside(failures: Sequence[Failure], *, has_budget: bool) -> Iterator[str]:
    for one in failures:
        if one.kind == "stopped":
            yield one.message
        if one.signal is not None and one.signal not in OWN_FAULTS:
            yield (
                f"{one.message}, which this run did not declare: somebody's kill, or the kernel "
                "when memory ran out"
            )
        if one.exit_code == NO_REPORT:
            yield f"{one.message}: it could not report how it failed{_SEE}"
        if one.kind == "out_of_memory" and not has_budget:
            yield f"not enough memory for rank {one.rank} in {one.phase}: {one.message}"


def _before_it_began(failures: Sequence[Failure]) -> Iterator[str]:
    for one in failures:
        if one.phase in _BEFORE_IT_BEGAN and one.kind not in ("budget_too_small", "peer_lost"):
            yield (
                f"rank {one.rank} failed in {one.phase}, before its experiment began: "
                f"{one.message}{_SEE}"
            )

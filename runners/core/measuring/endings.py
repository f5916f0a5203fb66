"""How a pass ends, as the launcher sees it: each rank, the root cause, and whether it is evidence.

In: a rank's heartbeat, its record, its exit code and its idle time. Out: its `RankOutcome`, and of
several ranks the root cause; or why the end says nothing about the experiment, because the machine
or a person caused it.

Signals that a process raises against itself by a fault (SIGABRT, SIGSEGV, …) are evidence; those
that only another process or the kernel sends are not, unless the run declared exactly this death.
What fails before the strategy of the run is called, while ranks find each other and warm up, is the
same for all experiments and evidence of none. No torch.
"""

import errno
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proofbook.runners.core.declared.experiment import Declaration, PassName
from proofbook.runners.core.ranks.heartbeat import FIRST_BEAT, last_beat
from proofbook.runners.core.system.processes import IdleTime
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import Failure
from proofbook.runners.core.trace.schema import Status
from proofbook.runners.system.errors import FixableError

NO_REPORT = 70  # the exit code of a rank that could not even write down how it failed
SIGNAL_NAMES = {number.value: number.name for number in signal.Signals}  # not all real-time ones
MAX_WORDS = 300  # characters kept of what a process wrote before it ended itself
# Of failures of several ranks the first kind explains the others: a broken connection never does
# if anything else can.
GRAVITY = ("signal", "out_of_memory", "exception", "timed_out", "hang", "peer_lost")
OWN_FAULTS = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
NO_SPACE = "no space left in {where}"
# What a failure says where the machine lacks something, and what to do about it.
LACKS = {
    "No space left on device|Disk quota exceeded": NO_SPACE,
    "Too many open files": "no file handles left: raise `ulimit -n`",
    "Unable to find interface|Unable to find address|Network is unreachable": (
        "ranks find no network interface: bring loopback up with `ip link set lo up`"
    ),
    "name resolution|Name or service not known|Address already in use|Cannot assign requested": (
        "ranks find no address: host names must resolve, and ports be free (`ss -tanp`)"
    ),
}
SEE = "; run again with PROOFBOOK_STDERR=1, which shows all that ranks say"
BEFORE_IT_BEGAN = ("start", "warm_up")
PROBE_BYTES = 1 << 20  # more than any record of a rank takes


class LiveRank:
    """A rank's process: the stem of the files that it writes, its heartbeat and its idle time."""

    def __init__(self, pid: int, files: Path, *, spins: bool = False) -> None:
        self.pid, self.files = pid, files
        self.exit_code: int | None = None
        self.outcome: RankOutcome | None = None
        self.beat = FIRST_BEAT
        self.idle_time = IdleTime(pid, spins=spins)

    def update(self, exit_code: int | None) -> None:
        """Keep the exit code, read record and heartbeat files; a new beat restarts idle time."""
        self.exit_code = self.exit_code if exit_code is None else exit_code
        record = self.files.with_suffix(".json")
        if self.outcome is None and record.exists():
            self.outcome = RankOutcome.model_validate_json(record.read_bytes())
        beat = last_beat(self.files.with_suffix(".heart"))
        if beat != self.beat:
            self.idle_time.restart()
        self.beat = beat

    @property
    def has_failed(self) -> bool:
        """Whether its record names a failure."""
        return self.outcome is not None and self.outcome.failure is not None

    @property
    def is_over(self) -> bool:
        """Whether it has exited or recorded a failure."""
        return self.exit_code is not None or self.has_failed

    def ending(self, rank: int, *, hung: bool, errors: str) -> RankOutcome:
        """A `RankOutcome`: as recorded, else failed: by exit code, as hung, or by a lost peer."""
        if self.outcome is not None:
            return self.outcome
        phase, code = self.beat.phase, self.exit_code
        step = None if self.beat.step < 0 else self.beat.step
        where: dict[str, Any] = {"rank": rank, "phase": phase, "step": step}
        status: Status = "failed"
        if code is not None:
            name = SIGNAL_NAMES.get(-code, f"signal {-code}") if code < 0 else None
            words = _last_words(errors) if code in (-signal.SIGABRT, NO_REPORT) else ""
            where |= {"signal": name} if name else {"exit_code": code}
            message = f"rank {rank} died in {phase}: {name or f'exit code {code}'}{words}"
            kind, status = "signal" if name else "exception", "died"
        elif hung:
            kind, message, status = "hang", f"rank {rank} stood still in {phase}", "deadlocked"
        else:
            kind, message = "peer_lost", f"rank {rank} was still in {phase} when a peer failed"
        failure = Failure(kind=kind, message=message, **where)
        return RankOutcome(rank=rank, status=status, failure=failure)


def _last_words(errors: str) -> str:
    """The last line of a process's standard error, in brackets; empty where there is none."""
    lines = errors.strip().splitlines()
    return f" ({lines[-1].strip().removeprefix('what():').strip()[:MAX_WORDS]})" if lines else ""


def cause_among(outcomes: list[RankOutcome], beats: list[int]) -> Failure | None:
    """The failure whose kind is first in `GRAVITY`, then of fewest `beats`; None if no rank failed.

    Of hanging ranks that is the rank that fell behind. Where several have equally few beats, no
    rank is to blame, and the failure names them all.
    """
    failures = [
        ((GRAVITY.index(o.failure.kind), count), o.failure)
        for o, count in zip(outcomes, beats, strict=True)
        if o.failure is not None
    ]
    if not failures:
        return None
    least = min(order for order, _ in failures)
    first, *others = (failure for order, failure in failures if order == least)
    if first.kind != "hang" or not others:
        return first
    places = ", ".join(f"rank {failure.rank} in {failure.phase}" for failure in others)
    return Failure(
        kind="hang",
        message=f"{first.message}, {places}; no rank fell behind",
        phase=" and ".join(sorted({failure.phase for failure in (first, *others)})),
        step=first.step if {failure.step for failure in others} == {first.step} else None,
    )


class NotMeasuredError(FixableError, RuntimeError):
    """A run that failed for want of the machine; the message is the cause, one line."""

    exit_code = 1


class UnfinishedError(RuntimeError):
    """An experiment of which some runs could not be measured; `causes` says why, by name."""

    def __init__(self, causes: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {cause}" for name, cause in causes.items()))
        self.causes = causes


def missing_resource(message: str, where: Path) -> str | None:
    """The resource that the machine lacks by an error message, and its remedy; None without one."""
    lines = (line for pattern, line in LACKS.items() if re.search(pattern, message))
    return next((line.format(where=where) for line in lines), None)


def is_full(folder: Path) -> bool:
    """Whether writing a temporary file of 1 MiB there fails for want of space or of quota."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def why_not_measured(
    declaration: Declaration,
    pass_name: PassName,
    outcomes: Sequence[RankOutcome],
    scratch: Path,
    *,
    is_limited: bool = False,
) -> str | None:
    """Why unexpected failures are no evidence: lacking resource, full disk, outside cause; or None.

    The ranks wrote into `scratch`; they have a memory limit that no declaration set if
    `is_limited`.
    """
    death = declaration.expected_death
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    unexpected = [failure for failure in failures if not (death and death.is_that_of(failure))]
    if not unexpected:
        return None
    # Ranks write into a folder of their pass, in one of the launcher, in the temporary folder.
    temporary = scratch.parent.parent
    for failure in unexpected:
        if lacking := missing_resource(failure.message, temporary):
            return f"{lacking}, and run again"
    if is_full(scratch):
        return NO_SPACE.format(where=temporary)
    budgeted = pass_name == "budgeted" or is_limited or declaration.expected == "out_of_memory"
    causes = (_from_outside(failure, has_budget=budgeted) for failure in unexpected)
    return next(filter(None, causes), None)


def _from_outside(failure: Failure, *, has_budget: bool) -> str | None:
    """How the machine or a person caused a failure; None where the experiment did."""
    message, rank, phase = failure.message, failure.rank, failure.phase
    if failure.signal is not None and failure.signal not in OWN_FAULTS:
        return (
            f"{message}, which this run did not declare: somebody's kill, or the kernel "
            "when memory ran out"
        )
    if failure.exit_code == NO_REPORT:
        return f"{message}: it could not report how it failed{SEE}"
    if failure.kind == "out_of_memory" and not has_budget:
        return f"not enough memory for rank {rank} in {phase}: {message}"
    if phase in BEFORE_IT_BEGAN and failure.kind != "peer_lost":
        return f"rank {rank} failed in {phase}, before its experiment began: {message}{SEE}"
    return None

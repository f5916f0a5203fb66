"""How a pass ends, as the launcher sees it: each rank, the root cause, and whether it is evidence.

In: a rank's heartbeat, its record, its exit code and the kernel's account of its processor time.
Out: whether it works or hangs, its `RankOutcome` in the end, and of several ranks the root cause;
or why the end says nothing about the experiment, because the machine or a person caused it.

Signals that a process raises against itself by a fault (SIGABRT, SIGSEGV, …) are evidence; those
that only another process or the kernel sends are not, unless the run declared exactly this death.
What fails before the strategy of the run is called, while ranks find each other and warm up, is the
same for all experiments and evidence of none. No torch.
"""

import errno
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.core.declared.experiment import Declaration, PassName
from runners.core.ranks.heartbeat import Beat, listen
from runners.core.system import processes
from runners.core.trace.outcome import RankOutcome
from runners.core.trace.records import Failure
from runners.core.trace.schema import Status
from runners.system.errors import FixableError

# NCCL waits by spinning, on the device and in the process: processor time says nothing there, nor
# where the kernel does not tell it. Only heartbeats do, which come at each phase: so ranks with an
# accelerator are given so many times as long, and those of other systems than Linux, which load
# torch each for itself, still longer.
SPINNING, UNTOLD = 5.0, 10.0
# gloo's threads wake up a hundred times a second while they wait; that little is not work.
IDLE_SHARE = 0.02
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
NO_REPORT = 70  # the exit code of a rank that could not even write down how it failed
SIGNAL_NAMES = {one.value: one.name for one in signal.Signals}  # few real-time ones have a name
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


@dataclass
class LiveRank:
    """One rank's process as the launcher sees it, and the files that it writes: their stem."""

    pid: int
    files: Path
    exit_code: int | None = None
    outcome: RankOutcome | None = None
    ticks: int | None = None
    beat: Beat = field(default_factory=lambda: Beat(0, -1, "start"))
    quiet_since: float = field(default_factory=time.monotonic)
    quiet_ticks: int = 0
    spins: bool = False  # whether it waits by spinning: it has an accelerator

    def look(self, exit_code: int | None) -> None:
        """Read its record once it is there, its heartbeat, and whether it works."""
        self.exit_code = self.exit_code if exit_code is None else exit_code
        record = self.files.with_suffix(".json")
        if self.outcome is None and record.exists():
            self.outcome = RankOutcome.model_validate_json(record.read_bytes())
        beat = listen(self.files.with_suffix(".heart"))
        ticks = None if self.spins else processes.cpu_ticks(self.pid)
        now = time.monotonic()
        idle_ticks = IDLE_SHARE * (now - self.quiet_since) * TICKS_PER_SECOND
        works = ticks is not None and ticks - self.quiet_ticks > max(1.0, idle_ticks)
        if beat != self.beat or works:
            self.quiet_since, self.quiet_ticks = now, ticks or 0
        self.beat, self.ticks = beat, ticks

    def is_quiet(self, seconds: float) -> bool:
        """Whether it has neither spoken nor worked for these seconds."""
        if self.ticks is None:
            seconds *= SPINNING if self.spins else UNTOLD
        if time.monotonic() - self.quiet_since <= seconds:
            return False
        if not self.spins and processes.wants_processor(self.pid):  # starved by others
            self.quiet_since = time.monotonic()
            return False
        return True

    @property
    def has_failed(self) -> bool:
        """Whether its record names a failure."""
        return self.outcome is not None and self.outcome.failure is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.exit_code is not None or self.has_failed

    def ending(self, rank: int, *, hung: bool, errors: str) -> RankOutcome:
        """The outcome of this rank, made up from what is known where it left no record.

        Args:
            rank: which.
            hung: whether its pass ended because nobody moved.
            errors: what it wrote to standard error.
        """
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
    """What a process that ended itself wrote last: why, as a library saw it."""
    lines = errors.strip().splitlines()
    return f" ({lines[-1].strip().removeprefix('what():').strip()[:MAX_WORDS]})" if lines else ""


def cause_among(outcomes: list[RankOutcome], beats: list[int]) -> Failure | None:
    """The failure that explains the others.

    Of hanging ranks it is the one that fell behind: it spoke the fewest times. Where several spoke
    equally few times, no rank is to blame, and the failure names them all.

    Args:
        outcomes: one a rank.
        beats: how often each of these ranks spoke.
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
    places = ", ".join(f"rank {one.rank} in {one.phase}" for one in others)
    return Failure(
        kind="hang",
        message=f"{first.message}, {places}; no rank fell behind",
        phase=" and ".join(sorted({one.phase for one in (first, *others)})),
        step=first.step if all(one.step == first.step for one in others) else None,
    )


class NotMeasuredError(FixableError, RuntimeError):
    """A run that failed for want of the machine; the message is the cause, one line."""

    exit_code = 1


class UnfinishedError(RuntimeError):
    """An experiment of which some runs could not be measured; `causes` says why, by name."""

    def __init__(self, causes: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {cause}" for name, cause in causes.items()))
        self.causes = causes


def lack(words: str, where: Path) -> str | None:
    """What the machine lacked where something failed, and what to do; None where nothing.

    Args:
        words: of the error.
        where: the folder it worked in.
    """
    found = (lacks for said, lacks in LACKS.items() if re.search(said, words))
    return next((lacks.format(where=where) for lacks in found), None)


def is_full(folder: Path) -> bool:
    """Whether a folder takes no further file of the size that ranks write."""
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
    """Why a pass that failed is no evidence; None where it is, and where nothing failed.

    Args:
        declaration: the run as declared.
        pass_name: which pass.
        outcomes: one a rank.
        scratch: the folder in which the ranks wrote.
        is_limited: the ranks of this pass have a limit of memory although none was declared.
    """
    death = declaration.expected_death
    failures = [one.failure for one in outcomes if one.failure is not None]
    unexpected = [one for one in failures if not (death and death.is_that_of(one))]
    if not unexpected:
        return None
    # Ranks write into a folder of their pass, in one of the launcher, in the temporary folder.
    temporary = scratch.parent.parent
    for one in unexpected:
        if lacking := lack(one.message, temporary):
            return f"{lacking}, and run again"
    if is_full(scratch):
        return NO_SPACE.format(where=temporary)
    budgeted = pass_name == "budgeted" or is_limited or declaration.expected == "out_of_memory"
    found = (line for one in unexpected for line in _from_outside(one, has_budget=budgeted))
    return next(found, None)


def _from_outside(one: Failure, *, has_budget: bool) -> Iterator[str]:
    if one.signal is not None and one.signal not in OWN_FAULTS:
        yield (
            f"{one.message}, which this run did not declare: somebody's kill, or the kernel "
            "when memory ran out"
        )
    if one.exit_code == NO_REPORT:
        yield f"{one.message}: it could not report how it failed{SEE}"
    if one.kind == "out_of_memory" and not has_budget:
        yield f"not enough memory for rank {one.rank} in {one.phase}: {one.message}"
    if one.phase in BEFORE_IT_BEGAN and one.kind != "peer_lost":
        yield (
            f"rank {one.rank} failed in {one.phase}, before its experiment began: "
            f"{one.message}{SEE}"
        )

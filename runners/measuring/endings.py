"""How a rank ends, as the launcher sees it: with a record or without, by itself or stopped.

In: its heartbeat, its record, its exit code and the kernel's account of its processor time. Out:
whether it works or hangs, its `RankOutcome` in the end, and of several ranks the root cause.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runners.ranks.heartbeat import Beat, listen
from runners.system import processes
from runners.system.errors import LaunchError
from runners.traces.outcome import RankOutcome
from runners.traces.records import Failure
from runners.traces.schema import Status

# NCCL waits by spinning, on the device and in the process: processor time says nothing there, nor
# where the kernel does not tell it. Only heartbeats do, which come at each phase: so ranks with an
# accelerator, and those of other systems than Linux, are given so many times as long.
BEATS_ALONE = 5.0
# gloo's threads wake up a hundred times a second while they wait; that little is not work.
IDLE_SHARE = 0.02
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
NO_REPORT = 70  # the exit code of a rank that could not even write down how it failed
SIGNAL_NAMES = {one.value: one.name for one in signal.Signals}  # few real-time ones have a name
MAX_WORDS = 300  # characters kept of what a process wrote before it ended itself
# Of failures of several ranks the first kind explains the others: a broken connection never does
# if anything else can.
GRAVITY = (
    "signal", "out_of_memory", "budget_too_small", "exception", "timed_out", "hang",
    "peer_lost",
)  # fmt: skip


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
            try:
                self.outcome = RankOutcome.model_validate_json(record.read_bytes())
            except ValidationError as error:
                raise LaunchError(f"a rank wrote a record that cannot be read: {error}") from None
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
        patience = seconds if self.ticks is not None else seconds * BEATS_ALONE
        if time.monotonic() - self.quiet_since <= patience:
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

"""How ranks ended: what is known of one that left no record, and which failure explains the others.

In: ranks as the launcher saw them last. Out: a `RankOutcome` each, and the root cause. Pure.
"""

from __future__ import annotations

import signal

from runners.measuring import not_measured
from runners.measuring.live_rank import LiveRank
from runners.system.processes import STOPPED, TRACED
from runners.traces.outcome import RankOutcome
from runners.traces.records import Failure
from runners.traces.schema import Status

MAX_WORDS = 300  # characters kept of what a process wrote before it ended itself


def _last_words(errors: str) -> str:
    """What a process that ended itself wrote last: why, as a library saw it."""
    lines = [line.strip().removeprefix("what():").strip() for line in errors.splitlines()]
    lines = [line for line in lines if line]
    return f" ({lines[-1][:MAX_WORDS]})" if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the many real-time signals few have a name
        return f"signal {number}"


def ending_of(rank: int, live: LiveRank, hung: bool, errors: str) -> RankOutcome:
    """The outcome of a rank, made up from what is known where it left no record.

    Args:
        rank: which.
        live: its process, as it was seen last.
        hung: whether its pass ended because nobody moved.
        errors: what it wrote to standard error.
    """
    if live.outcome is not None:
        return live.outcome
    beat = live.beat
    step = beat.step if beat.step >= 0 else None
    if live.exit_code is not None:
        code = live.exit_code
        name = _signal_name(-code) if code < 0 else None
        what = name or f"exit code {code}"
        if code in (-signal.SIGABRT, not_measured.NO_REPORT):
            what += _last_words(errors)
        failure = Failure(
            kind="signal" if code < 0 else "exception",
            message=f"rank {rank} died in {beat.phase}: {what}",
            requested_bytes=None,
            rank=rank,
            phase=beat.phase,
            step=step,
            signal=name,
            exit_code=code if name is None else None,
        )
        return RankOutcome(rank=rank, status="died", failure=failure)
    kind, message = "peer_lost", f"rank {rank} was still in {beat.phase} when a peer failed"
    if live.state in (STOPPED, TRACED):
        how = "(SIGSTOP)" if live.state == STOPPED else "by a debugger"
        kind, message = "stopped", f"rank {rank} was stopped {how} in {beat.phase}; run again"
    elif hung:
        kind, message = "hang", f"rank {rank} stood still in {beat.phase}"
    failure = Failure(
        kind=kind,
        message=message,
        requested_bytes=None,
        rank=rank,
        phase=beat.phase,
        step=step,
    )
    status: Status = "deadlocked" if kind == "hang" else "failed"
    return RankOutcome(rank=rank, status=status, failure=failure)


_GRAVITY = (
    "signal",
    "stopped",
    "out_of_memory",
    "budget_too_small",
    "exception",
    "timed_out",
    "hang",
    "peer_lost",
)


def cause_among(outcomes: list[RankOutcome], beats: list[int]) -> Failure | None:
    """The failure that explains the others: a broken connection never does if anything else can.

    Of hanging ranks it is the one that fell behind: it spoke the fewest times. Where several spoke
    equally few times, no rank is to blame, and the failure names them all.

    Args:
        outcomes: one a rank.
        beats: how often each of these ranks spoke.
    """
    failures = [
        (_GRAVITY.index(o.failure.kind), count, o.rank, o.failure)
        for o, count in zip(outcomes, beats, strict=True)
        if o.failure is not None
    ]
    if not failures:
        return None
    first = min(failures, key=lambda one: one[:3])
    behind = [one[3] for one in failures if one[:2] == first[:2]]
    return _of_nobody(behind) if first[3].kind == "hang" and len(behind) > 1 else first[3]


def _of_nobody(hanging: list[Failure]) -> Failure:
    """One failure of ranks that hang together, none of which is behind the others."""
    first, *others = hanging
    places = ", ".join(f"rank {one.rank} in {one.phase}" for one in others)
    phases = sorted({one.phase for one in hanging})
    steps = {one.step for one in hanging}
    return Failure(
        kind="hang",
        message=f"{first.message}, {places}; no rank fell behind",
        requested_bytes=None,
        rank=None,
        phase=" and ".join(phases),
        step=steps.pop() if len(steps) == 1 else None,
    )

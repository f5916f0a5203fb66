"""A run's timeline as trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

In: a trace and a run of it. Out: JSON in the format that Google publishes as "Trace Event Format"
(https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), which Perfetto
reads (https://perfetto.dev/docs/getting-started/other-formats). Spans are complete events: `ph` is
"X", with `name`, `cat`, `ts` and `dur` in microseconds, `pid` and `tid`. Each rank is a process of
its own, which a metadata event (`ph` is "M") names.

All ranks are on the clock of rank 0. How far a rank's events may be off stands in `otherData`
where clocks were compared.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from runners.traces.measured import RankClock
from runners.traces.records import Run, Trace


def exported(trace: Trace, name: str) -> bytes:
    """The timeline of one run as JSON."""
    run = trace.runs[name]
    worst = worst_clock(run)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "experiment": trace.experiment,
            "run": name,
            "machine": trace.machine,
            "recorded_at": trace.recorded_at,
            "torch": trace.circumstances.torch,
            "nature": run.nature,
            "clock": "rank 0",
            **({"clock_error_microseconds": _microseconds(worst.seconds)} if worst else {}),
        },
        "traceEvents": [*_named(run), *_spans(run)],
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def has_order(run: Run) -> bool:
    """Whether a run has a timeline, and clocks that agree to within less than it lasts."""
    spans, worst = run.timing.timeline, worst_clock(run)
    if not spans or worst is None:
        return bool(spans)
    lasts = max(one.end_seconds for one in spans) - min(one.start_seconds for one in spans)
    return worst.seconds < lasts


class WorstClock(NamedTuple):
    """The clock whose rank's events may be furthest off.

    An offset below its own error was not corrected (`Timing.clocks`), and then adds to the error.
    """

    position: int
    adds_offset: bool
    seconds: float


def worst_clock(run: Run) -> WorstClock | None:
    """How far two ranks' events may be off against rank 0, at the most; None with one clock."""
    clocks = [
        WorstClock(position, _adds(clock), _error(clock))
        for position, clock in enumerate(run.timing.clocks)
    ]
    return max(clocks, key=lambda one: one.seconds, default=None)


def _adds(clock: RankClock) -> bool:
    return 0 < abs(clock.offset_seconds) <= clock.error_seconds


def _error(clock: RankClock) -> float:
    return clock.error_seconds + (abs(clock.offset_seconds) if _adds(clock) else 0.0)


def _named(run: Run) -> list[dict[str, Any]]:
    clocks = {clock.rank: _microseconds(_error(clock)) for clock in run.timing.clocks}
    events: list[dict[str, Any]] = []
    for rank in sorted({span.rank for span in run.timing.timeline}):
        named = f"rank {rank} (±{clocks[rank]:g} µs)" if rank in clocks else f"rank {rank}"
        for name, value in (("name", named), ("sort_index", rank)):
            event = f"process_{name}"
            events.append({"ph": "M", "name": event, "pid": rank, "tid": 0, "args": {name: value}})
    return events


def _spans(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "name": span.name,
            "cat": span.activity,
            "ts": _microseconds(span.start_seconds),
            "dur": _microseconds(span.end_seconds - span.start_seconds),
            "pid": span.rank,
            "tid": 0,
            "args": {},
        }
        for span in run.timing.timeline
    ]


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)

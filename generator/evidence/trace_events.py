"""A run's timeline as trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

In: a trace and a run of it. Out: JSON in the format that Google publishes as "Trace Event Format"
(https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), which Perfetto
reads (https://perfetto.dev/docs/getting-started/other-formats). Spans are complete events: `ph` is
"X", with `name`, `cat`, `ts` and `dur` in microseconds, `pid` and `tid`. Each rank is a process of
its own, which a metadata event (`ph` is "M") names.

All ranks are on the clock of one machine.
"""

from __future__ import annotations

import json
from typing import Any

from runners.traces.records import Run, Trace


def exported(trace: Trace, name: str) -> bytes:
    """The timeline of one run as JSON."""
    run = trace.runs[name]
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "experiment": trace.experiment,
            "run": name,
            "machine": trace.machine,
            "recorded_at": trace.recorded_at,
            "torch": trace.circumstances.torch,
            "nature": run.nature,
        },
        "traceEvents": [*_named(run), *_spans(run)],
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _named(run: Run) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for rank in sorted({span.rank for span in run.timing.timeline}):
        for name, value in (("name", f"rank {rank}"), ("sort_index", rank)):
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

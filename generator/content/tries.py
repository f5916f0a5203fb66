"""What a reader tried: runs of `python -m runners try`, shown beside the book's under `serve`.

In: `content/tries/`, a trace of one run a file. Out: the tries. A try takes the place of the book's
run of its name to say what an expression would have been; no build ever reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from generator.content.content_files import Files, found_in
from generator.content.shelf import TraceOnPage
from runners.traces import files
from runners.traces.records import Trace


def read(folder: Path) -> tuple[Trace, ...]:
    """The tries of a folder, the oldest first; other files are passed over."""
    trying = Files(folder).trying
    found = [one for path in found_in(folder, "*.json") if (one := trying(files.read, path))]
    return tuple(sorted(found, key=lambda one: one.recorded_at))


def of_run(tries: Sequence[Trace], path: str) -> list[Trace]:
    """The tries of one run, `experiment.run`."""
    return [one for one in tries if path == f"{one.experiment}.{next(iter(one.runs))}"]


def with_try(traces: Mapping[str, TraceOnPage], tried: Trace) -> dict[str, TraceOnPage]:
    """The book's traces, had its run come out as the reader's."""
    shown = traces[tried.experiment]
    trace = shown.trace.model_copy(update={"runs": {**shown.trace.runs, **tried.runs}})
    return {**traces, tried.experiment: replace(shown, trace=trace)}

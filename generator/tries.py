"""What a reader tried: runs of `python -m runners try`, shown beside the book's under `serve`.

In: `content/tries/`, a trace of one run a file. Out: the tries, and a line for each file that is
none. A try takes the place of the book's run of its name to say what an expression would have been;
no build ever reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from generator import units
from generator.paths import TraceOnPage, unit_of
from runners.trace import Run, Trace, TraceError, read_try

if TYPE_CHECKING:
    from generator.book import Book


@dataclass(frozen=True)
class Changed:
    """A setting that a reader changed: its name, its value in the book's run, and the reader's."""

    name: str
    before: str
    after: str


def read(folder: Path) -> tuple[tuple[Trace, ...], tuple[str, ...]]:
    """The tries of a folder, the oldest first, and why the other files of it are none."""
    found: list[Trace] = []
    lost: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(read_try(path))
        except (TraceError, OSError) as error:
            message = str(error).removeprefix(f"{path}: ").splitlines()[0]
            lost.append(f"tries/{path.name}: {message}")
    return tuple(sorted(found, key=lambda one: one.recorded_at)), tuple(lost)


def of_run(tries: Sequence[Trace], path: str) -> list[Trace]:
    """The tries of one run, `experiment.run`."""
    return [one for one in tries if path == f"{one.experiment}.{next(iter(one.runs))}"]


def with_try(book: Book, tried: Trace) -> Book:
    """The book, had its run come out as the reader's."""
    shown = book.traces[tried.experiment]
    trace = shown.trace.model_copy(update={"runs": {**shown.trace.runs, **tried.runs}})
    replaced: TraceOnPage = replace(shown, trace=trace)
    return replace(book, traces={**book.traces, tried.experiment: replaced})


def changed(books: Run, readers: Run) -> list[Changed]:
    """What a reader set otherwise than the book, in the order of the book's settings."""
    before = {**books.settings, "world_size": books.world_size}
    after = {**readers.settings, "world_size": readers.world_size}
    return [
        Changed(name, _printed(name, before.get(name)), _printed(name, after.get(name)))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _printed(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    unit = unit_of(("settings", name), value)
    return units.printed(value, unit, units.Form(way=None if unit == units.BYTES else "written"))

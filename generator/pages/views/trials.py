"""A trial: the run that measures it, what running it prints, settings worth changing, own runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from generator.content import tries
from generator.content.lesson import Trial, TryFile
from generator.evidence import units
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import Folio
from generator.evidence.paths import unit_of
from generator.evidence.value import Value
from generator.pages.shown import Shown
from runners.traces.records import Run, Trace
from runners.traces.summary import summary_lines

COMMAND = ".venv/bin/python -m runners try"
MAX_TRIES = 8  # the newest ones


def command(run: str, changed: Mapping[str, object] | None = None) -> str:
    """What measures the run of a trial, with some of its settings changed."""
    return " ".join([COMMAND, run, *(f"--set {key}={to}" for key, to in (changed or {}).items())])


def output(written: Trial, lesson: TryFile, folio: Folio) -> str:
    """What that command prints of the book's own run.

    It stands at the last trial of a run, so that it answers no question before it is asked.
    """
    run = folio.run(written.run)
    is_last = [one for one in lesson.trials if one.run == written.run][-1] is written
    return "\n".join(summary_lines(run)) if run and is_last else ""


def own(written: Trial, folio: Folio) -> list[Shown]:
    """The reader's own runs; only while serving."""
    found = tries.of_run(folio.book.tries, written.run)[-MAX_TRIES:]
    return [_try(written, one, folio) for one in found]


def _try(written: Trial, own: Trace, folio: Folio) -> Shown:
    name = written.run.partition(".")[2]
    books = folio.book.run(written.run)
    differences = changed(books, own.runs[name]) if books else []
    suggested = {setting for one in written.suggestions for setting in one.set}
    return Shown(  # what follows from a setting comes after it
        changed=sorted(differences, key=lambda one: one.name not in suggested),
        value=_value(written, own, folio),
        machine=own.machine,
        when=own.recorded_at,
    )


def _value(written: Trial, own: Trace, folio: Folio) -> str:
    """The number to look at, had the book's run come out as the reader's; or how that ended."""
    if folio.book.run(written.run) is not None:
        traces = tries.with_try(folio.book.traces, own)
        book = replace(folio.book, traces=traces, machines={})  # no other stands in for the reader
        found = Evidence(book).evaluate(written.value).result
        if isinstance(found, Value) and not found.absent:
            return str(found)
    status = next(iter(own.runs.values())).status
    return f"{folio.ui['statuses'][status]}; this run did not measure the value"


def changed(books: Run, readers: Run) -> list[Shown]:
    """What a reader set otherwise than the book, in the order of the book's settings."""
    before = {**books.settings, "world_size": books.world_size}
    after = {**readers.settings, "world_size": readers.world_size}
    return [
        Shown(
            name=name,
            before=_printed(name, before.get(name)),
            after=_printed(name, after.get(name)),
        )
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _printed(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    unit = unit_of(("settings", name), value)
    return units.printed(value, unit, units.Form(way=None if unit == units.BYTES else "written"))

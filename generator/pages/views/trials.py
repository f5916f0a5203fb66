"""A trial: the run that measures it, what running it prints, settings worth changing, own runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from markupsafe import Markup

from generator.content import tries
from generator.content.modes.trials import Suggestion, Trial, TryFile
from generator.evidence import units
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import Folio
from generator.evidence.paths import unit_of
from generator.evidence.value import Value
from runners.traces.records import Run, Trace
from runners.traces.summary import summary_lines

COMMAND = ".venv/bin/python -m runners try"
MAX_TRIES = 8  # the newest ones


@dataclass(frozen=True)
class Changed:
    """A setting that a reader changed: its name, its value in the book's run, and the reader's."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class SuggestionOnPage:
    """A command with settings changed, and what to look at in its output."""

    command: str
    look: Markup


@dataclass(frozen=True)
class TryOnPage:
    """A reader's own run: what was changed, the outcome, on which machine and when."""

    changed: list[Changed]
    value: str
    machine: str
    when: str


@dataclass(frozen=True)
class TrialOnPage:
    """What follows the question of a trial.

    Attributes:
        item: the question that comes first.
        run: `experiment.run`.
        command: what measures it.
        lines: what that command prints of the book's own run; it stands at the last trial of a run,
            so that it answers no question before it is asked.
        value: the number to look at, in the book's run.
        measures: what this number is, where `lines` do not print it.
        tries: the reader's own runs; only while serving.
    """

    item: str
    run: str
    command: str
    lines: str
    value: Markup
    measures: Markup | None
    suggestions: list[SuggestionOnPage]
    tries: list[TryOnPage]


def trial(written: Trial, lesson: TryFile, folio: Folio) -> TrialOnPage:
    """What a trial shows once its question is answered."""
    run = folio.run(written.run)
    is_last = [one for one in lesson.trials if one.run == written.run][-1] is written
    return TrialOnPage(
        item=written.item,
        run=written.run,
        command=f"{COMMAND} {written.run}",
        lines="\n".join(summary_lines(run)) if run and is_last else "",
        value=folio.cell(written.value),
        measures=folio.line(written.measures) if written.measures else None,
        suggestions=[_suggestion(written.run, one, folio) for one in written.suggestions],
        tries=[
            _try(written, one, folio)
            for one in tries.of_run(folio.book.tries, written.run)[-MAX_TRIES:]
        ],
    )


def _suggestion(run: str, written: Suggestion, folio: Folio) -> SuggestionOnPage:
    changed = " ".join(f"--set {key}={value}" for key, value in written.set.items())
    return SuggestionOnPage(f"{COMMAND} {run} {changed}", folio.line(written.look))


def _try(written: Trial, own: Trace, folio: Folio) -> TryOnPage:
    name = written.run.partition(".")[2]
    books = folio.book.run(written.run)
    differences = changed(books, own.runs[name]) if books else []
    suggested = {setting for one in written.suggestions for setting in one.set}
    return TryOnPage(  # what follows from a setting comes after it
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
    return f"{folio.ui['statuses'][status]}; {folio.ui['try']['lacks']}"


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

"""A trial: the run that measures it, what running it prints, settings worth changing, own runs."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from generator import tries
from generator.evidence import Evidence
from generator.modes.trials import Suggestion, Trial, TryFile
from generator.tries import Changed
from generator.value import Value
from generator.views.folio import Folio
from runners.trace import Trace, tried

COMMAND = "python -m runners try"
MAX_TRIES = 8  # the newest ones


@dataclass(frozen=True)
class SuggestionOnPage:
    """A command with settings changed, and what to look at in its output."""

    command: str
    look: Markup


@dataclass(frozen=True)
class TryOnPage:
    """A reader's own run: what was changed, what came of it, on which machine and when."""

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
        tries: the reader's own runs; only while serving.
    """

    item: str
    run: str
    command: str
    lines: str
    value: Markup
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
        lines="\n".join(tried(run)) if run and is_last else "",
        value=folio.cell(written.value),
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
    changed = tries.changed(books, own.runs[name]) if books else []
    suggested = {setting for one in written.suggestions for setting in one.set}
    return TryOnPage(  # what follows from a setting comes after it
        changed=sorted(changed, key=lambda one: one.name not in suggested),
        value=_value(written, own, folio),
        machine=own.machine,
        when=own.recorded_at,
    )


def _value(written: Trial, own: Trace, folio: Folio) -> str:
    """The number to look at, had the book's run come out as the reader's; or how that ended."""
    if folio.book.run(written.run) is not None:
        found = Evidence(tries.with_try(folio.book, own)).evaluate(written.value).result
        if isinstance(found, Value) and not found.absent:
            return str(found)
    status = next(iter(own.runs.values())).status
    return f"{folio.ui['statuses'][status]}; {folio.ui['try']['lacks']}"

"""A trial: the run that measures it, what running it prints, settings worth changing, own runs."""

from collections.abc import Mapping
from dataclasses import replace

from generator.content.lesson import Trial, TryFile
from generator.pages.view import View
from generator.printing.folio import Folio
from generator.printing.sources import PYTHON
from generator.values.evaluation import Evidence
from runners.core.trace.records import Run, Trace
from runners.system.book import program
from runners.traces.summary import beside, summary_lines

MAX_TRIES = 8  # the newest ones


def command(run: str, changed: Mapping[str, object] | None = None) -> str:
    """The command that runs a trial, with some settings changed."""
    return " ".join(
        [program(PYTHON), "try", run, *(f"--set {key}={to}" for key, to in (changed or {}).items())]
    )


def output(written: Trial, lesson: TryFile, folio: Folio) -> str:
    """The lines that a trial prints of the book's own run, at the last trial of that run."""
    run = folio.run(written.run)
    is_last = [trial for trial in lesson.trials if trial.run == written.run][-1] is written
    return "\n".join(summary_lines(run)) if run and is_last else ""


def own(written: Trial, folio: Folio) -> list[View]:
    """`View`s of the reader's newest runs of a trial: changed settings, value or how it ended."""
    books, tries = folio.book.run(written.run), folio.book.tries
    own_tries = [
        trace for trace in tries if written.run == f"{trace.experiment}.{next(iter(trace.runs))}"
    ]
    return [_try(written, trace, books, folio) for trace in own_tries[-MAX_TRIES:] if books]


def of_experiment(name: str, folio: Folio) -> list[View]:
    """`View`s of the reader's own runs of an experiment, each beside the run of the page."""
    tries = [trace for trace in folio.book.tries if trace.experiment == name][-MAX_TRIES:]
    runs = ((trace, *next(iter(trace.runs.items()))) for trace in tries)
    known = ((trace, run, own, folio.book.run(f"{name}.{run}")) for trace, run, own in runs)
    return [
        View(run=run, when=trace.recorded_at, changed=_changed(book, own), said=beside(own, book))
        for trace, run, own, book in known
        if book
    ]


def _changed(books: Run, own: Run) -> list[View]:
    """The settings of a run that are not those of the page's."""
    before, after = ({**run.settings, "world_size": run.world_size} for run in (books, own))
    return [
        View(name=name, before=before.get(name, "–"), after=after.get(name, "–"))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _try(written: Trial, own: Trace, books: Run, folio: Folio) -> View:
    """A run of the reader's, with the number to look at, or how it ended.

    It is what the expression would have been, had the book's run come out as the reader's.
    """
    (run,) = own.runs.values()
    on_page = folio.book.traces[own.experiment]
    trace = on_page.trace.model_copy(update={"runs": {**on_page.trace.runs, **own.runs}})
    lent = on_page.lent - own.runs.keys()
    traces = {**folio.book.traces, own.experiment: replace(on_page, trace=trace, lent=lent)}
    book = replace(folio.book, traces=traces, machines={})  # no other stands in for the reader
    value = Evidence(book).value(written.value)
    lacks = f"{run.status.replace('_', ' ')}; this run did not measure the value"
    return View(
        changed=_changed(books, run),
        value=str(value) if value else lacks,
        machine=own.machine,
        when=own.recorded_at,
    )

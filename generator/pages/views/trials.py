"""Trials: a number to predict, the run that measures it, settings worth changing, own runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from generator.content.lesson import Trial, TryFile
from generator.pages.draft import Draft
from generator.pages.elements.element import Aside, Block, Element, ListOfLines
from generator.pages.elements.programs import Command, PrintedText, run_link
from generator.pages.elements.tables import Row, Table
from generator.pages.environment import command_words
from generator.pages.lessons import reveal
from generator.pages.view import label
from generator.printing.folio import Folio
from generator.printing.sources import PYTHON, moment
from generator.values.evaluation import Evidence
from runners.core.trace.fields import NBSP
from runners.core.trace.records import Run, Trace
from runners.system.book import program
from runners.traces.summary import beside, summary_lines

MAX_TRIES = 8  # the newest ones
OWN_TITLES = "You changed", "#Yours", "#This page's", "When"


def trials(draft: Draft) -> Iterator[Element | Markup]:
    """The page of the mode Try: each trial with its question, its run, and what to change."""
    lesson = draft.lesson(TryFile)
    yield draft.lede(lesson.introduction)
    for number, trial in enumerate(lesson.trials, 1):
        yield from draft.passage(draft.folio.line(trial.title), trial.situation, number)
        yield from draft.item(trial.item, "commit")
        yield reveal("The measurement, and why", trial.item, [draft.prose(trial.why)])
        heading = draft.heading(3, "Measure it yourself", is_listed=False)
        yield Block([heading, Command(command(trial.run))], "pb-command")
        output = _output(trial, lesson, draft.folio)
        yield reveal("The output, and what to change", trial.item, output)
    yield from draft.passage("After your runs", lesson.afterword)


def command(run: str, changed: Mapping[str, object] | None = None) -> str:
    """The command that runs a trial, with some settings changed."""
    return " ".join(
        [program(PYTHON), "try", run, *(f"--set {key}={to}" for key, to in (changed or {}).items())]
    )


def _output(trial: Trial, lesson: TryFile, folio: Folio) -> Iterator[Element | Markup]:
    """What the run of a trial printed, the reader's own runs, and settings worth changing."""
    text = _printed(trial, lesson, folio)
    if text:
        title = Markup("What it printed in the run of this page: {}")
        yield Aside(title.format(run_link(trial.run, folio)), "pb-listing-title")
        yield PrintedText(text)
    else:
        yield Aside(Markup("The output of this run is below, after the last question about it."))
    is_printed = str(folio.value(trial.value)).replace(NBSP, " ") in text
    yield Markup("<p>The number to look for{}: {}{}.</p>").format(
        ", which the output does not print" if trial.measures and text and not is_printed else "",
        folio.cell(trial.value),
        ", " + folio.line(trial.measures) if trial.measures else "",
    )
    if rows := _own_rows(trial, folio):
        yield Markup("<p>Your own runs beside the run of this page:</p>")
        yield Table(OWN_TITLES, rows, head_css="pb-label")
    yield Markup("<p>Change one setting and run it again:</p>")
    line = Markup("<code>{}</code><br>\n{}")
    suggestions = [
        line.format(command_words(command(trial.run, change.set)), folio.line(change.look))
        for change in trial.suggestions
    ]
    yield ListOfLines(suggestions, css="pb-suggestions")


def _printed(trial: Trial, lesson: TryFile, folio: Folio) -> str:
    """The lines that a trial prints of the book's own run, at the last trial of that run."""
    run = folio.run(trial.run)
    is_last = [other for other in lesson.trials if other.run == trial.run][-1] is trial
    return "\n".join(summary_lines(run)) if run and is_last else ""


# --- the reader's own runs


@dataclass(frozen=True)
class OwnRun(Element):
    """A run of the reader's, beside the run of the page."""

    IS_FOUND = False
    run: str
    when: str
    changed: list[Markup]  # settings
    lines: list[str]  # its summary


def of_experiment(name: str, folio: Folio) -> list[OwnRun]:
    """The reader's newest runs of an experiment that the book has measured."""
    return [
        OwnRun(run, trace.recorded_at, _changed(book, own), beside(own, book))
        for trace, run, own, book in _tries(name, folio)
    ][-MAX_TRIES:]


def _tries(experiment: str, folio: Folio) -> Iterator[tuple[Trace, str, Run, Run]]:
    """The reader's runs of an experiment: trace, name, the run, and the run of the page."""
    for trace in (trace for trace in folio.book.tries if trace.experiment == experiment):
        for name, own in trace.runs.items():
            if book := folio.book.run(f"{experiment}.{name}"):
                yield trace, name, own, book


def _own_rows(trial: Trial, folio: Folio) -> Sequence[Row]:
    """The reader's newest runs of a trial: changed settings, value or how each ended."""
    experiment, _, run = trial.run.partition(".")
    when = Markup('<span class="pb-label">{}<br>\n<code>{}</code></span>')
    return [
        [
            Markup("<br>").join(_changed(book, own)) or "nothing",
            label(_value(trial, trace, own, folio)),
            folio.cell(trial.value),
            when.format(moment(trace.recorded_at), trace.machine),
        ]
        for trace, name, own, book in _tries(experiment, folio)
        if name == run
    ][-MAX_TRIES:]


def _changed(book: Run, own: Run) -> list[Markup]:
    """The settings of a run that are not those of the page's."""
    before, after = ({**run.settings, "world_size": run.world_size} for run in (book, own))
    change = Markup("<code>{}</code> {} → {}")
    return [
        change.format(name, before.get(name, "–"), after.get(name, "–"))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _value(trial: Trial, own: Trace, run: Run, folio: Folio) -> str:
    """The number to look at of a run of the reader's, or how the run ended.

    It is what the expression would have been, had the book's run come out as the reader's.
    """
    on_page = folio.book.traces[own.experiment]
    trace = on_page.trace.model_copy(update={"runs": {**on_page.trace.runs, **own.runs}})
    lent = on_page.lent - own.runs.keys()
    traces = {**folio.book.traces, own.experiment: replace(on_page, trace=trace, lent=lent)}
    book = replace(folio.book, traces=traces, machines={})  # no other stands in for the reader
    value = Evidence(book).value(trial.value)
    lacks = f"{run.status.replace('_', ' ')}; this run did not measure the value"
    return str(value) if value else lacks

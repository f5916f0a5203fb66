"""Trials: a number to predict, the run that measures it, settings worth changing, own runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from markupsafe import Markup

from proofbook.generator.kinds.lessons import parts
from proofbook.generator.kinds.lessons.lessons import reveal
from proofbook.generator.kinds.lessons.words import Trial, TryFile
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Block, Element, ListOfLines, Made
from proofbook.generator.pages.elements.programs import Command, PrintedText, run_link
from proofbook.generator.pages.elements.tables import Row, Table
from proofbook.generator.pages.environment import label
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import whole_words
from proofbook.generator.printing.sources import PYTHON, moment
from proofbook.generator.values.evaluation import Evidence
from proofbook.runners.core.trace.fields import NBSP
from proofbook.runners.core.trace.records import Run, Trace
from proofbook.runners.system.book import program
from proofbook.runners.traces.summary import beside, summary_lines

MAX_TRIES = 8  # the newest ones
OWN_TITLES = "You changed", "#Yours", "#This page's", "When"


def trials(draft: Draft) -> Iterator[Element | Markup]:
    """The page of the mode Try: each trial with its question, its run, and what to change."""
    lesson = draft.lesson(TryFile)
    for number, trial in enumerate(lesson.trials, 1):
        yield from draft.passage(draft.folio.line(trial.title), trial.situation, number)
        yield from parts.item(draft, trial.item, "commit")
        yield reveal("The measurement, and why", trial.item, [draft.prose(trial.why)])
        heading = draft.heading(3, "Measure it yourself", is_listed=False)
        yield Block([heading, Command(_command(trial.run, {}))], "pb-command")
        output = _output(trial, lesson, draft.folio)
        yield reveal("The output, and what to change", trial.item, output)
    yield from draft.passage("After your runs", lesson.afterword)


def _command(run: str, changed: Mapping[str, object]) -> str:
    """The command that runs a trial, with some settings changed."""
    options = (f" --set {key}={setting}" for key, setting in changed.items())
    return f"{program(PYTHON)} try {run}{''.join(options)}"


def _output(trial: Trial, lesson: TryFile, folio: Folio) -> Iterator[Element | Markup]:
    """What the run of a trial printed, the reader's own runs, and settings worth changing."""
    run = folio.run(trial.run)
    text = "\n".join(summary_lines(run)) if run else ""
    of_run = [other for other in lesson.trials if other.run == trial.run]
    is_shown = text and of_run[-1] is trial
    if is_shown:  # once, at the last trial of the run
        title = Markup("What it printed in the run of this page: {}")
        yield Aside(title.format(run_link(trial.run, folio)), "pb-listing-title")
        yield PrintedText(text)
    else:
        yield Aside(Markup("The output of this run is below, after the last question about it."))
    printed = _as_printed(trial.value, text, folio)
    yield Markup("<p>The number to look for{}: {}{}.</p>").format(
        ", which the output does not print" if trial.measures and is_shown and not printed else "",
        folio.cell(printed or trial.value),
        ", " + folio.line(trial.measures) if trial.measures else "",
    )
    tries = tried(trial.run, folio)
    if rows := [_own_row(trial, trace, own, book, folio) for trace, _, own, book in tries]:
        yield Markup("<p>Your own runs beside the run of this page:</p>")
        yield Table(OWN_TITLES, rows, head_css="pb-label")
    yield Markup("<p>Change one setting and run it again:</p>")
    line = Markup("<code>{}</code><br>\n{}")
    suggestions = [
        line.format(whole_words(_command(trial.run, change.set)), folio.line(change.look))
        for change in trial.suggestions
    ]
    yield ListOfLines(suggestions, css="pb-suggestions")


def _as_printed(value: str, text: str, folio: Folio) -> str | None:
    """The expression of a number as an output has it, rounded or exact; None where it has not."""
    for form in (value, f"{value} | exact"):
        number = str(folio.value(form)).replace(NBSP, " ")
        is_own = form == value or not number.isdecimal()  # an exact 1 is in any text
        if is_own and re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d,]|\.\d)", text):
            return form
    return None


# --- the reader's own runs


def of_experiment(name: str, folio: Folio) -> list[Made]:
    """The reader's newest runs of an experiment, each beside the run that the book has measured."""
    return [
        Made(
            "OwnRun", is_found=False, run=run, when=trace.recorded_at, changed=changed(book, own),
            lines=beside(own, book),
        ) for trace, run, own, book in tried(name, folio)
    ]  # fmt: skip


def tried(path: str, folio: Folio) -> list[tuple[Trace, str, Run, Run]]:
    """The reader's newest runs of an experiment, or of a run: trace, name, run, the page's run."""
    experiment, _, only = path.partition(".")
    return [
        (trace, name, own, book)
        for trace in folio.book.tries
        if trace.experiment == experiment
        for name, own in trace.runs.items()
        if only in ("", name) and (book := folio.book.run(f"{experiment}.{name}"))
    ][-MAX_TRIES:]


def _own_row(trial: Trial, trace: Trace, own: Run, book: Run, folio: Folio) -> Row:
    """A run of a trial by the reader: changed settings, value or how it ended."""
    when = Markup('<span class="pb-label">{}<br>\n<code>{}</code></span>')
    value, at = label(_value(trial, trace, own, folio)), moment(trace.recorded_at)
    changes = Markup("<br>").join(changed(book, own)) or "nothing"
    return [changes, value, folio.cell(trial.value), when.format(at, trace.machine)]


def changed(book: Run, own: Run) -> list[Markup]:
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
    lent = {name: of for name, of in on_page.lent.items() if name not in own.runs}
    traces = {**folio.book.traces, own.experiment: replace(on_page, trace=trace, lent=lent)}
    book = replace(folio.book, traces=traces, machines={})  # no other stands in for the reader
    value = Evidence(book).value(trial.value)
    lacks = f"{run.status.replace('_', ' ')}; this run did not measure the value"
    return str(value) if value else lacks

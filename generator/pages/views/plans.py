"""The pages of plans: the models that there are, and one model's strategies in every state.

In: the committed plans of the book and what planner/plan.yml says. Out: a row for each model, and
the figure that readers operate, over all runs of a grid.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup, escape

from generator.content.exhibit import Figure, Play, PlayControl
from generator.content.plan_page import PlanFile
from generator.content.shelf import TraceOnPage
from generator.evidence.folio import Folio
from generator.evidence.value import numeric
from generator.figures import figures
from generator.figures.figures import FigureOnPage
from generator.figures.play.plan_view import needed
from generator.pages.table import Column, Row, counted, table
from runners.traces.plan_grid import Grid, GridRow
from runners.traces.records import Run

SETTINGS = ("num_ranks", "precision", "optimizer", "sequence", "checkpointing")


def models(folio: Folio, line: Markup) -> Markup:
    """Each model whose plans the book has, in the order that the author gives them.

    Args:
        folio: the page.
        line: the memory of a device, where the line of each model's figure starts.
    """
    words, found = folio.ui["plan"], folio.book.traces
    columns = [
        Column(words["model"], False), Column(words["parameters"]), Column(words["devices"], False),
        Column(Markup("{} {}").format(words["fitting"], line), False),
    ]  # fmt: skip
    return table(columns, (
        _row(name, found[name], grid, folio)
        for name in _plan(folio).models
        if name in found and (grid := found[name].grid) is not None
    ))  # fmt: skip


def _plan(folio: Folio) -> PlanFile:
    assert folio.book.plan is not None
    return folio.book.plan


def _row(name: str, shown: TraceOnPage, grid: Grid, folio: Folio) -> Row:
    """A model, the devices it was simulated on, and how many strategies fit its first state."""
    words, runs = folio.ui["plan"], shown.trace.runs
    first = next(iter(runs))
    usual = [run for run in runs.values() if _state(run) == _state(runs[first])]
    line = folio.value(_plan(folio).line)
    memory = numeric(line) if line is not None else 0
    devices = grid.rows[0].state.devices
    label = Markup('<span class="pb-label">{}</span>')
    return [
        Markup('<a class="pb-label" href="{}">{}</a>').format(shown.page, grid.title),
        folio.cell(f"{name}.{first}.settings.num_parameters"),
        label.format(", ".join(map(str, sorted({one.state.devices for one in grid.rows})))),
        Markup('{} {} {}<small class="pb-regime">{} {} {}, {}</small>').format(
            counted(sum(needed(run.ranks) <= memory for run in usual)),
            folio.ui["evidence"]["of"],
            counted(len(usual)),
            words["fitting_on"],
            label.format(devices),
            words["device"] if devices == 1 else words["devices"].lower(),
            _in_words(f"{name}.{first}", grid.rows[0], folio),
        ),
    ]


def _state(run: Run) -> tuple[object, ...]:
    return tuple(run.settings[name] for name in SETTINGS)


def _in_words(path: str, row: GridRow, folio: Folio) -> Markup:
    """The state of a run as one line."""
    words, state = _plan(folio).words, row.state
    checkpointing = words.checkpointing.get(state.checkpointing, state.checkpointing)
    parts = [
        folio.line(words.precision.get(state.precision, state.precision)),
        folio.line(words.optimizer.get(state.optimizer, state.optimizer)),
        *(
            Markup("{}: {}").format(folio.ui["plan"]["controls"][name].lower(), said)
            for name, said in (
                ("sequence", folio.cell(f"{path}.settings.sequence")),
                ("checkpointing", folio.line(checkpointing)),
            )
        ),
    ]
    return Markup(", ").join(parts)


def title(name: str | None, folio: Folio) -> Markup:
    """The title of a model's page, in which its name may hold a number."""
    grid = folio.book.traces[name or ""].grid
    assert grid is not None
    model = Markup('<span class="pb-label">{}</span>').format(grid.title)
    return Markup(escape(_plan(folio).model_title)).replace("{model}", model)


def planned(name: str, folio: Folio) -> tuple[FigureOnPage, list[tuple[str, Markup]]]:
    """The figure over all runs of a model, and what is the same in each of them, with its name.

    Args:
        name: of its plans, as expressions call them.
        folio: the page.
    """
    shown = folio.book.traces[name]
    folio.text.unmarked = "simulated"  # the page says it once, of all its numbers
    fixed = [
        (
            folio.ui["plan"][setting],
            folio.cell(f"{name}.{next(iter(shown.trace.runs))}.settings.{of}"),
        )
        for setting, of in (("parameters", "num_parameters"), ("microbatch", "microbatch"))
    ]
    fixed += _fixed(shown, folio)
    return figures.draw(_figure(shown, folio), folio), fixed


def left_out(grid: Grid, folio: Folio) -> list[tuple[Markup, int, str]]:
    """The strategies that a grid does not have, on how many devices, and why."""
    words = _plan(folio).words.strategies
    rows = {(one.strategy, one.state.devices, one.reason) for one in grid.left_out}
    return [(folio.line(words.get(name, name)), num, why) for name, num, why in sorted(rows)]


def _varies(setting: str, shown: TraceOnPage) -> bool:
    return len({run.settings[setting] for run in shown.trace.runs.values()}) > 1


def _fixed(shown: TraceOnPage, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """The settings that no run varies, as the page says them above its figure."""
    words, first = _plan(folio).words.model_dump(), next(iter(shown.trace.runs))
    for setting in SETTINGS:
        if not _varies(setting, shown):
            value = shown.trace.runs[first].settings[setting]
            said = words.get(setting, {}).get(value)
            path = f"{shown.trace.experiment}.{first}.settings.{setting}"
            yield (
                folio.ui["plan"]["controls"][setting],
                folio.line(said) if said else folio.cell(path),
            )


def _figure(shown: TraceOnPage, folio: Folio) -> Figure:
    """The figure over all runs of a grid; what no run varies is no choice."""
    plan, name = _plan(folio), shown.trace.experiment
    words = plan.words.model_dump()
    varied = [setting for setting in SETTINGS if _varies(setting, shown)]
    caption = f"{plan.caption} {plan.combinations}" if varied else plan.caption
    return Figure(
        id="plan",
        kind="play",
        title=plan.figure_title,
        caption=caption,
        runs=[f"{name}.{run}" for run in shown.trace.runs],
        play=Play(
            task=plan.task if varied else plan.task_of_one,
            controls=[
                PlayControl(
                    label=folio.ui["plan"]["controls"][setting],
                    reads=f"run.settings.{setting}",
                    words=words.get(setting, {}),
                )
                for setting in varied
            ],
            beside=PlayControl(
                label=folio.ui["plan"]["strategy"],
                reads="run.settings.strategy",
                words=plan.words.strategies,
            ),
            shows=["plan"],
            budget=plan.line,
        ),
    )

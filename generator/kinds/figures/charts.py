"""Charts of runs: loss by epoch or step, how a number grows beside its formula, and bars."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from proofbook.generator.content.exhibit import Figure, GrowthChart
from proofbook.generator.kinds.figures.axes import AxisMark, Scale, percent, plain
from proofbook.generator.kinds.figures.drawing import WIDE
from proofbook.generator.kinds.figures.drawings import plot
from proofbook.generator.kinds.figures.drawings.stacks import BarPart, Stack, stacks
from proofbook.generator.kinds.figures.picture import DrawnState, NumberRow, Picture, plain_line
from proofbook.generator.kinds.figures.play.states import PlayState
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Value, numeric

FIELDS = ("loss", "validation_loss", "accuracy", "validation_accuracy")
PANEL, PANEL_HEIGHT = replace(WIDE, width=344), 170  # half a column; between its axes
Read = Mapping[str, Mapping[str, Sequence[Value | None]]]  # of each run, each field of its epochs
HEIGHT = 250
BY_FORMULA = "by the formula"


# --- epochs


def epochs(figure: Figure, folio: Folio) -> Picture:
    """`Picture`: SVG panels of loss and accuracy by epoch of a figure's runs, and their table."""
    names = _names_of(figure.runs, folio)
    read = {
        names[path]: {
            field: [folio.reading(path, "epochs", n, field) for n in range(len(run.epochs))]
            for field in FIELDS
        }
        for path in figure.runs
        if (run := folio.run(path))
    }
    panels = Markup()
    for panel, says in (("loss", plain), ("accuracy", percent)):
        series = list(_lines(panel, read))
        if series:
            ys = [y for curve in series for _, y, _ in curve.points]
            numbers = range(1, 1 + max(len(curve.points) for curve in series))
            x = plot.Axis("epoch", numbers, ends=(1, max(numbers[-1], 2)))
            drawing = plot.plot(series, x, plot.axis_of("", ys, 4, says=says), PANEL_HEIGHT, PANEL)
            described = "; ".join(
                f"{curve.name}: " + ", ".join(f"{y:.4g}" for _, y, _ in curve.points)
                for curve in series
            )
            described = f"{panel.capitalize()}. {described}"
            title = plain_line(figure.title, folio)
            svg = drawing.svg(
                f"{figure.id}-{panel}", title, described, f"pb-{panel}", is_operated=folio.opens
            )
            panels += Markup("<div><p>{}</p>{}</div>").format(panel.capitalize(), svg)
    drawings = Markup('<div class="pb-panels">{}</div>').format(panels) if panels else None
    fields = [field for field in FIELDS if any(any(values[field]) for values in read.values())]
    head = ["Epoch", *(field.replace("_", " ").capitalize() for field in fields)]
    return Picture(head, list(_rows_of_epochs(read, fields, folio)), drawings)


def _names_of(paths: Sequence[str], folio: Folio) -> dict[str, str]:
    """A short name of each run; its whole path where another run has the same.

    Where the name is that of its strategy, the strategy's word: `ddp` is DDP, but `summed` of an
    experiment may be no all-reduce of sums.
    """
    short = {}
    for path in paths:
        name, run = path.partition(".")[2], folio.run(path)
        is_strategy = run is not None and name == (run.label or run.strategy)
        short[path] = folio.strategy(run) if run and is_strategy else name.replace("_", " ")
    num = Counter(short.values())
    return {path: name if num[name] == 1 else path for path, name in short.items()}


def _lines(panel: str, read: Read) -> Iterator[plot.Series]:
    """A line for training and validation of each run; too many runs, training alone."""
    fields = {panel: "training", f"validation_{panel}": "validation"}
    if len(fields) * len(read) > len(plot.LINES):
        fields = {panel: "training"}
    position = 0
    for of_run, values in read.items():
        for field, kind in fields.items():
            name = f"{of_run}, {kind}" if len(read) > 1 else kind
            points = [
                (float(n), numeric(value), f"{name}, epoch {n}: {value}")
                for n, value in enumerate(values[field], 1)
                if value is not None and not isinstance(value.number, str)
            ]
            if points:
                yield plot.dashed(name, points, position)
                position += 1


def _rows_of_epochs(read: Read, fields: Sequence[str], folio: Folio) -> Iterator[NumberRow]:
    for of_run, values in read.items():
        for n, row in enumerate(zip(*(values[field] for field in fields), strict=True), 1):
            label = f"{of_run} · epoch {n}" if len(read) > 1 else f"epoch {n}"
            yield [label, *("" if value is None else folio.show(value) for value in row)]


# --- growth


class GrowthRun(NamedTuple):
    """A point of a series: its run, its place, what was measured, what the formula says."""

    run: str  # empty if no run gave it
    x: Value
    measured: Value
    predicted: Value | None


def rows_by_series(chart: GrowthChart, evidence: Evidence) -> dict[str, list[GrowthRun]]:
    """The measured runs of each series that has any, or its points, by its label, sorted by x."""
    by_label: dict[str, list[GrowthRun]] = {}
    for series in chart.series:
        formula = series.predicted or chart.predicted
        places = [(run, chart.x or "", chart.measured or "") for run in series.runs]
        for run, at, height in [*places, *(("", *point) for point in series.points)]:
            x, measured = evidence.value(at, run), evidence.value(height, run)
            if x is not None and measured is not None:
                predicted = evidence.value(formula, run) if formula and run else None
                row = GrowthRun(run, x, measured, predicted)
                by_label.setdefault(series.label, []).append(row)
    return {label: sorted(rows, key=lambda row: numeric(row.x)) for label, rows in by_label.items()}


def growth(figure: Figure, folio: Folio) -> Picture:
    """`Picture`: SVG of a figure's measured values over x by series, with the formula; a table."""
    assert figure.growth is not None
    written, by_label = figure.growth, rows_by_series(figure.growth, folio.evidence)
    rows = [row for runs in by_label.values() for row in runs]
    for row in rows:
        folio.run(row.run)
    measured = folio.column_head(row.measured for row in rows)
    head = ["Run", plain_line(written.x_label, folio), measured]
    head += [BY_FORMULA] if written.predicted else []
    table = list(_rows_of_growth(by_label, len(head) - 1, folio))
    if not rows:
        return Picture(head)
    of_x = _unit([row.x for row in rows])
    of_y = _unit([value for row in rows for value in (row.measured, row.predicted) if value])
    series = list(_series(by_label, measured.lower(), of_x[1], of_y[1], folio))
    points = [point for curve in series for point in curve.points]
    xs, ys, is_log = {x for x, _, _ in points}, {y for _, y, _ in points}, written.logarithmic
    x_title, y_title = (
        ", ".join(filter(None, (plain_line(label, folio), unit, is_log * "log scale")))
        for label, unit in ((written.x_label, of_x[0]), (written.y_label, of_y[0]))
    )
    ends = (min(xs) if is_log else 0, max(xs))
    x = plot.Axis(x_title, sorted({ends[0], *xs}), ends, is_logarithmic=is_log)
    if any(plain(value) != plain(value, 3) for value in xs) and not is_log:
        x = plot.axis_of(x_title, {*ends}, 5)  # no number of the axis is a setting
    y = plot.axis_of(y_title, ys if is_log else {0, *ys}, 5, is_logarithmic=is_log)
    says = "; ".join(say for _, _, say in points if say)
    state = DrawnState(partial(plot.plot, series, x, y, HEIGHT), says)
    title = plain_line(figure.title, folio)
    return Picture(head, table, state.svg(figure.id, title, is_operated=folio.opens))


def _unit(values: Sequence[Value]) -> tuple[str, float]:
    """The unit of an axis, and its size in base units, chosen by the largest value."""
    return units.of_axis(values[0].unit, max(abs(numeric(value)) for value in values))


def _series(
    by_label: Mapping[str, Sequence[GrowthRun]], measured: str, x: float, y: float, folio: Folio
) -> Iterator[plot.Series]:
    """A line for each label, and what the formula says, which needs one name for all.

    A formula whose points are all on the line of another is drawn once: dashes upon dashes would
    look like a line.
    """
    formulas = [
        [(numeric(row.x) / x, numeric(row.predicted) / y, "") for row in runs if row.predicted]
        for runs in by_label.values()
    ]
    for (label, runs), mark in zip(by_label.items(), plot.MARKS, strict=False):
        name, points = plain_line(label, folio), []
        for row in runs:
            formula_words = f" ({BY_FORMULA} {row.predicted})" if row.predicted else ""
            say = f"{name}, {row.x}: {row.measured}{formula_words}"
            points.append((numeric(row.x) / x, numeric(row.measured) / y, say))
        # beside a formula a band, on which dashes still show
        is_run = any(formulas) and row.run
        title, width = (f"{name}, {measured}", "band") if is_run else (name, "thick")
        yield plot.Series(title, points, f"{mark[0]} {width}", mark)
    formulas.sort(key=len, reverse=True)
    for n, formula in enumerate(formulas):
        if formula and not any(set(formula) <= set(longer) for longer in formulas[:n]):
            yield plot.Series("" if n else BY_FORMULA, formula, "formula")


def _rows_of_growth(
    by_label: Mapping[str, Sequence[GrowthRun]], num_values: int, folio: Folio
) -> Iterator[NumberRow]:
    for label, runs in by_label.items():
        for row in runs:
            name = folio.line(label)
            name += Markup(" · <code>{}</code>").format(row.run) if row.run else ""
            values = (row.x, row.measured, row.predicted)[:num_values]
            yield [name, *map(folio.printed, values)]


# --- bars

PARTS = "parameters", "gradients", "optimizer"  # kinds of stacks, whose looks the parts have


def bars(figure: Figure, folio: Folio) -> Picture:
    """`Picture`: SVG of a bar for each row of a figure's values, a line over them, their table."""
    assert figure.bars is not None
    chart, title = figure.bars, plain_line(figure.title, folio)
    names = [plain_line(name, folio) for name in chart.columns]
    read = {row.title: [folio.value(cell) for cell in row.cells] for row in chart.rows}
    known = {name: [value for value in row if value] for name, row in read.items() if all(row)}
    mark = folio.value(chart.mark.cells[0]) if chart.mark else None
    every = [value for row in known.values() for value in row]
    if not every:
        return Picture(["What", *names])
    sums = [sum(map(numeric, row)) for row in known.values()]
    largest = max(*sums, numeric(mark) if mark else 0)
    unit, size = units.of_axis(every[0].unit, largest)
    rows = []
    for (name, row), total in zip(known.items(), sums, strict=True):
        label, own = plain_line(name, folio), names if len(names) > 1 else [""]
        parts = [
            BarPart(kind, part, numeric(value) / size, f"{label}: {value}")
            for kind, part, value in zip(PARTS, own, row, strict=False)
        ]
        words = units.printed(total, every[0].unit, units.AS_RULED) if row[1:] else str(row[0])
        rows.append(Stack(label.partition(": ")[0], label, parts, words))
    axis = ", ".join(filter(None, ("" if names[1:] else names[0], unit)))
    described = [f"{row.label}: {row.words}" for row in rows]
    line = None
    if chart.mark and mark:
        line = AxisMark(numeric(mark) / size, f"{plain_line(chart.mark.title, folio)}: {mark}")
        described.append(line.words)
    draw = partial(stacks, rows, axis, largest / size * 1.05, budget=line)
    svg = DrawnState(draw, "; ".join(described)).svg(figure.id, title, is_operated=folio.opens)
    table = [[folio.line(name), *map(folio.show, row)] for name, row in known.items()]
    return Picture(["What", *names], table, svg)


# --- losses of the steps of a play


def loss(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: loss by step, a line for each run, all states on the same axes."""
    lines = [list(_losses(state, folio)) for state in states]
    points = [point for series in lines for curve in series for point in curve.points]
    if not points:
        return
    last = max(x for x, _, _ in points)
    x = plot.Axis("step", Scale(1, last, 0, 1).ticks(6), ends=(1, last))
    y = plot.axis_of("", [y for _, y, _ in points], 4)
    for series in lines:
        says = "; ".join(f"{curve.name}: {curve.points[-1][2]}" for curve in series)
        yield DrawnState(partial(plot.plot, series, x, y, PANEL_HEIGHT), says)


def _losses(state: PlayState, folio: Folio) -> Iterator[plot.Series]:
    """The losses of each run, of which about a dozen can be read off."""
    for position, labelled in enumerate(state.runs):
        name = labelled.label or folio.strategy(labelled.run)
        known = [
            (n, loss) for n, loss in enumerate(labelled.run.step_losses, 1) if loss is not None
        ]
        every, points = 1 + len(known) // 16, []
        for n, loss in known:
            words = f"{name}, step {n}: {units.printed(loss, units.LOSS, units.AS_RULED)}"
            points.append((float(n), loss, "" if n % every and n < len(known) else words))
        yield plot.dashed(name, points, position)

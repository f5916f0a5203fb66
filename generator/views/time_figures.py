"""Figures about time: who did what in one step, and how long a step took."""

from __future__ import annotations

from generator.chart import NARROW, WIDE
from generator.drawings import spreads as spreads_drawing
from generator.drawings import timeline as timeline_drawing
from generator.drawings.spreads import Spread
from generator.drawings.timeline import Activity
from generator.exhibit import Figure
from generator.value import Value
from generator.views.folio import Folio
from generator.views.picture import Picture, Table, chart_svg


def _scale(seconds: float) -> tuple[float, str]:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return factor, unit
    return 1e6, "µs"


def timeline(figure: Figure, folio: Folio) -> Picture:
    """One step of the first run: a row a rank."""
    path = figure.runs[0]
    run = folio.run(path)
    words = folio.ui["figure"]
    table = Table(
        [
            words["rank"].capitalize(),
            words["computed"],
            words["communicated"],
            words["waited"],
            words["share"],
        ]
    )
    if run is None or not run.timing.timeline:
        return Picture(table)
    factor, unit = _scale(max(span.end_seconds for span in run.timing.timeline))
    spans = [
        Activity(
            row=f"{words['rank']} {span.rank}",
            activity=span.activity,
            name=span.name,
            start=round(span.start_seconds * factor, 4),
            end=round(span.end_seconds * factor, 4),
        )
        for span in run.timing.timeline
    ]
    fields = ("compute_seconds", "communication_seconds", "waiting_seconds", "waiting_share")
    for position, rank in enumerate(run.timing.ranks):
        cells = [folio.cell(f"{path}.timing.ranks[{position}].{name}") for name in fields]
        table.rows.append([f"{words['rank']} {rank.rank}", *cells])
    rows = sorted({span.rank for span in run.timing.timeline})
    names = [f"{words['rank']} {rank}" for rank in rows]
    description = "; ".join(
        f"{words['rank']} {rank.rank}: {words['waited'].lower()} "
        f"{rank.waiting_share:.0%} of the step"
        for rank in run.timing.ranks
    )
    drawings = [
        chart_svg(
            timeline_drawing.timeline(names, spans, unit, words["activities"], layout),
            figure,
            folio,
            layout.name,
            description,
        )
        for layout in (WIDE, NARROW)
    ]
    return Picture(table, drawings)


def _number(value: Value | None) -> float:
    assert value is not None
    assert not isinstance(value.number, str)
    return float(value.number)


def step_times(figure: Figure, folio: Folio) -> Picture:
    """The time of one step of each run: median, quartiles, raw samples."""
    words = folio.ui["figure"]
    table = Table(
        [
            words["run"],
            words["median"].capitalize(),
            words["first_quartile"],
            words["third_quartile"],
            words["samples"],
        ]
    )
    read = []
    for path in figure.runs:
        run = folio.run(path)
        if run is None or run.timing.step is None:
            continue
        step = f"{path}.timing.step"
        label = folio.strategy(run)
        if run.world_size > 1:
            label += f", {run.world_size} {words['ranks']}"
        median = folio.value(f"{step}.median_seconds")
        read.append((path, label, median, run.timing.step, run.timing.oversubscribed))
        note = f" ({words['oversubscribed']})" if run.timing.oversubscribed else ""
        table.rows.append(
            [
                f"{label}{note}",
                folio.cell(f"{step}.median_seconds"),
                folio.cell(f"{step}.first_quartile_seconds"),
                folio.cell(f"{step}.third_quartile_seconds"),
                folio.cell(f"{step}.num_samples"),
            ]
        )
    if not read:
        return Picture(table)
    factor, unit = _scale(max(_number(median) for _, _, median, _, _ in read))
    rows = [
        Spread(
            label=label,
            first_quartile=round(samples.first_quartile_seconds * factor, 4),
            median=round(samples.median_seconds * factor, 4),
            third_quartile=round(samples.third_quartile_seconds * factor, 4),
            samples=tuple(round(s * factor, 4) for s in samples.samples),
            words=f"{words['median']} {median}",
        )
        for _, label, median, samples, _ in read
    ]
    description = "; ".join(f"{row.label}: {row.words}" for row in rows)
    title = f"{unit} {words['per_step']}"
    drawings = [
        chart_svg(
            spreads_drawing.spreads(rows, title, layout), figure, folio, layout.name, description
        )
        for layout in (WIDE, NARROW)
    ]
    return Picture(table, drawings)

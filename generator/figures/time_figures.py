"""Figures about time: who did what in one step, and how long a step took."""

from __future__ import annotations

from collections.abc import Sequence

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.figures.drawing import Drawing, Layout
from generator.figures.drawings import spreads as spreads_drawing
from generator.figures.drawings import timeline as timeline_drawing
from generator.figures.drawings.spreads import Spread
from generator.figures.drawings.timeline import Activity
from generator.figures.picture import Picture, Table, on_both
from runners.traces.measured import RankTime
from runners.traces.records import Run


def time_unit(seconds: float) -> tuple[float, str]:
    """The factor from seconds to the unit of an axis that ends there, and that unit."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return factor, unit
    return 1e6, "µs"


def timeline(figure: Figure, folio: Folio) -> Picture:
    """One step of the first run: a row a rank."""
    path = figure.runs[0]
    run = folio.run(path)
    if run is None or not run.timing.timeline:
        return Picture(_rank_sums(path, [], folio))
    words = folio.ui["figure"]
    factor, unit = time_unit(max(span.end_seconds for span in run.timing.timeline))
    spans, details = _spans(path, run, factor, folio)
    rows, description = timeline_rows(run, folio)

    def draw(layout: Layout) -> Drawing:
        return timeline_drawing.timeline(rows, spans, unit, words["activities"], layout)

    drawings = on_both(draw, figure, folio, description)
    return Picture(_rank_sums(path, run.timing.ranks, folio), drawings, details=details)


def _rank_sums(path: str, ranks: Sequence[RankTime], folio: Folio) -> Table:
    """How each rank spent the step."""
    words = folio.ui["figure"]
    heads = ("computed", "communicated", "waited", "share")
    table = Table([words["rank"].capitalize(), *(words[name] for name in heads)])
    fields = ("compute_seconds", "communication_seconds", "waiting_seconds", "waiting_share")
    for position, rank in enumerate(ranks):
        cells = [folio.cell(f"{path}.timing.ranks[{position}].{name}") for name in fields]
        table.rows.append([f"{words['rank']} {rank.rank}", *cells])
    return table


def timeline_rows(run: Run, folio: Folio) -> tuple[list[tuple[str, str]], str]:
    """The rows of a timeline, each with what stands at its end, and all of them in words."""
    words = folio.ui["figure"]
    rows = [
        (f"{words['rank']} {rank.rank}", f"{words['waits']} {rank.waiting_share:.0%}")
        for rank in run.timing.ranks
    ]
    description = "; ".join(
        f"{words['rank']} {rank.rank}: {words['waited'].lower()} "
        f"{rank.waiting_share:.0%} {words['of_the_step']}"
        for rank in run.timing.ranks
    )
    return rows, description


def activities(path: str, run: Run, factor: float, folio: Folio) -> list[Activity]:
    """What ranks did in the step of a timeline, each with its words; times in 1 / `factor` s."""
    words = folio.ui["figure"]
    found = []
    for position, span in enumerate(run.timing.timeline):
        place = f"{path}.timing.timeline[{position}]"
        start, end = (folio.value(f"{place}.{side}_seconds") for side in ("start", "end"))
        row, activity = f"{words['rank']} {span.rank}", words["activities"][span.activity]
        is_plain = span.name.startswith(span.activity)
        named = f"{row}, {span.name}" if is_plain else f"{row}, {span.name} ({activity})"
        found.append(
            Activity(
                row=row,
                activity=span.activity,
                name=span.name,
                start=round(span.start_seconds * factor, 4),
                end=round(span.end_seconds * factor, 4),
                say=f"{named}: {words['from']} {start} {words['until']} {end}",
            )
        )
    return found


def _spans(path: str, run: Run, factor: float, folio: Folio) -> tuple[list[Activity], Table]:
    """What is drawn, each with its words, and a row for each that is not waiting."""
    words = folio.ui["figure"]
    table = Table([words["activity"], words["starts"], words["ends"]])
    found = activities(path, run, factor, folio)
    for position, (span, one) in enumerate(zip(run.timing.timeline, found, strict=True)):
        if span.activity != "waiting":
            place = f"{path}.timing.timeline[{position}]"
            cells = [folio.cell(f"{place}.{side}_seconds") for side in ("start", "end")]
            table.rows.append([one.say.partition(":")[0], *cells])
    return found, table


def _said(path: str, label: str, folio: Folio) -> str:
    """A row of step times in words: median and quartiles, as its table prints them."""
    words = folio.ui["figure"]
    names = ("median", "first_quartile", "third_quartile")
    median, low, high = (folio.value(f"{path}.timing.step.{name}_seconds") for name in names)
    return f"{label}: {words['median']} {median}, {words['quartiles']} {low} – {high}"


def step_times(figure: Figure, folio: Folio) -> Picture:
    """The time of one step of each run: median, quartiles, raw samples."""
    words = folio.ui["figure"]
    quartiles = ("first_quartile", "third_quartile")
    table = Table(
        [words["run"], words["median"].capitalize(), *map(words.get, quartiles), words["samples"]]
    )
    fields = ("median_seconds", "first_quartile_seconds", "third_quartile_seconds", "num_samples")
    read = []
    for path in figure.runs:
        run = folio.run(path)
        if run is None or run.timing.step is None:
            continue
        step = f"{path}.timing.step"
        label = folio.strategy(run)
        if run.world_size > 1:
            label += f", {run.world_size} {words['ranks']}"
        read.append((path, label, folio.value(f"{step}.median_seconds"), run.timing.step))
        note = f" ({words['oversubscribed']})" if run.timing.oversubscribed else ""
        table.rows.append([f"{label}{note}", *(folio.cell(f"{step}.{one}") for one in fields)])
    if not read:
        return Picture(table)
    factor, unit = time_unit(max(samples.median_seconds for *_, samples in read))
    rows = [
        Spread(
            label=label,
            first_quartile=round(samples.first_quartile_seconds * factor, 4),
            median=round(samples.median_seconds * factor, 4),
            third_quartile=round(samples.third_quartile_seconds * factor, 4),
            samples=tuple(round(s * factor, 4) for s in samples.samples),
            words=f"{words['median']} {median}",
            say=_said(path, label, folio),
        )
        for path, label, median, samples in read
    ]
    description = "; ".join(f"{row.label}: {row.words}" for row in rows)
    title = f"{unit} {words['per_step']}"

    def draw(layout: Layout) -> Drawing:
        return spreads_drawing.spreads(rows, title, layout)

    return Picture(table, on_both(draw, figure, folio, description))

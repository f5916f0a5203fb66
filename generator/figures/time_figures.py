"""Figures about time: who did what in one step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from generator.content.exhibit import Figure
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.figures.drawings import timeline as timeline_drawing
from generator.figures.drawings.timeline import Activity
from generator.figures.picture import Picture, Table, on_both
from runners.traces.measured import RankTime
from runners.traces.records import Run


def timeline(figure: Figure, folio: Folio) -> Picture:
    """One step of the first run: a row a rank."""
    path = figure.runs[0]
    run = folio.run(path)
    if run is None or not run.timing.timeline:
        return Picture(_rank_sums(path, [], folio))
    words = folio.ui["figure"]
    longest = max(span.end_seconds for span in run.timing.timeline)
    unit, size = units.of_axis(units.SECONDS, longest)
    spans = activities(path, run, size, folio)
    details = _spans(path, run, spans, folio)
    rows, description = timeline_rows(run, folio)
    draw = partial(timeline_drawing.timeline, rows, spans, unit, words["activities"])
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
    rows, described = [], []
    for rank in run.timing.ranks:
        name, share = f"{words['rank']} {rank.rank}", f"{rank.waiting_share:.0%}"
        rows.append((name, f"{words['waits']} {share}"))
        described.append(f"{name}: {words['waited'].lower()} {share} {words['of_the_step']}")
    return rows, "; ".join(described)


def activities(path: str, run: Run, size: float, folio: Folio) -> list[Activity]:
    """What ranks did in the step of a timeline, each with its words; times in units of `size` s."""
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
                start=round(span.start_seconds / size, 4),
                end=round(span.end_seconds / size, 4),
                say=f"{named}: {words['from']} {start} {words['until']} {end}",
            )
        )
    return found


def _spans(path: str, run: Run, spans: Sequence[Activity], folio: Folio) -> Table:
    """A row for each activity that is not waiting."""
    words = folio.ui["figure"]
    table = Table([words["activity"], words["starts"], words["ends"]])
    for position, (span, one) in enumerate(zip(run.timing.timeline, spans, strict=True)):
        if span.activity != "waiting":
            place = f"{path}.timing.timeline[{position}]"
            cells = [folio.cell(f"{place}.{side}_seconds") for side in ("start", "end")]
            table.rows.append([one.say.partition(":")[0], *cells])
    return table

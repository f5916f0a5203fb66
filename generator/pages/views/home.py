"""The home page's picture, and the map of topics."""

from collections.abc import Mapping, Sequence

from generator.content.topic import Survivor
from generator.pages.view import View
from generator.pages.views.ways import all_items, first_hour, item_marks, ways
from generator.printing.folio import Folio
from generator.values import units
from generator.values.filters import ended
from generator.values.value import Value, numeric

MARGIN = 1.35  # of the axis beyond the longest bar, for its number
NUMBER = 0.22  # of the axis, that a number takes on a phone
GAP = 8  # between the columns of the map, in per cent of its width


def picture(folio: Folio) -> list[View]:
    """A `View` for each model of the home page: bars of peak memory on one axis, its budget."""
    models = folio.book.home.picture
    peaks = {way.run: _peaks(way.run, folio) for model in models for way in model.ways}
    top = MARGIN * max((numeric(peak) for of_run in peaks.values() for peak in of_run), default=0)
    unit, scale = units.of_axis(units.BYTES, top, 10)
    charts = []
    for model in models:
        budget = folio.value(model.budget)
        line = numeric(budget) / top if budget else 0
        ways = [way for way in model.ways if peaks[way.run]]
        rows = [_row(way, peaks[way.run], top, line, folio) for way in ways]
        if budget is not None and rows:
            charts.append(View(
                called=folio.line(model.called), question=folio.line(model.question),
                budget=folio.show(budget), share=round(line, 4),
                at=round(numeric(budget) / scale), top=round(top / scale, 2), unit=unit,
                rows=rows, next=folio.line(model.next),
            ))  # fmt: skip
    return charts


def _peaks(path: str, folio: Folio) -> list[Value]:
    run = folio.run(path)
    places = range(len(run.ranks)) if run else ()
    peaks = (folio.reading(path, "ranks", place, "memory", "peak_bytes") for place in places)
    return [peak for peak in peaks if peak is not None]


def _row(way: Survivor, peaks: Sequence[Value], top: float, line: float, folio: Folio) -> View:
    """A way to train: a bar for each rank, and how its run ended under the budget.

    A bar is the peak as a share of the axis, and as a number, past the bar's end or within it.
    """
    run, tried = folio.run(way.run), folio.run(way.budgeted)
    assert run is not None
    fits = tried is not None and tried.status == "completed"
    end = folio.reading(way.budgeted, by=ended)
    outcome = "trains" if fits else str(end.number) if end else "not run"
    shares = [round(numeric(peak) / top, 4) for peak in peaks]
    bars = [
        View(share=share, shown=folio.show(peak), is_within=NUMBER < share < line < share + NUMBER)
        for share, peak in zip(shares, peaks, strict=True)
    ]
    need = max(shares)  # no line may lie below it for the run to fit
    return View(
        name=folio.strategy(run), says=folio.line(way.says) if way.says else "",
        bars=bars, need=need, outcome=outcome, fits=fits,
    )  # fmt: skip


def begin(folio: Folio) -> str:
    """Address of the first page to read, from the site's root."""
    steps = first_hour(folio)
    return steps[0].href if steps else f"topics/{next(iter(folio.book.lessons), 'index')}.html"


def topic_map(folio: Folio, minutes: Mapping[str, int]) -> View:
    """`View`: cards of topics in columns, each right of its requirements; an SVG path of lines."""
    columns: dict[str, int] = {}
    for topic in folio.book.topics:  # in their order, so that what one requires comes before it
        columns[topic.id] = max((columns[name] + 1 for name in topic.file.requires), default=0)
    by_column = [
        [topic for topic in folio.book.topics if columns[topic.id] == column]
        for column in range(1 + max(columns.values(), default=0))
    ]
    width = (100 - GAP * (len(by_column) - 1)) / len(by_column)
    places = {
        topic.id: (column * (width + GAP), 100 * (at + 0.5) / len(topics))
        for column, topics in enumerate(by_column) for at, topic in enumerate(topics)
    }  # fmt: skip
    edges = []
    for topic in folio.book.topics:
        right, lower = places[topic.id]
        for left, upper in (places[name] for name in topic.file.requires):
            start, middle = left + width, (left + width + right) / 2
            bend = f"{middle:.5g} {upper:.5g} {middle:.5g} {lower:.5g}"
            edges.append(f"M{start:.5g} {upper:.5g}C{bend} {right:.5g} {lower:.5g}")
    titles = {topic.id: folio.in_link.line(topic.file.title) for topic in folio.book.topics}
    cards = {
        topic.id: View(
            id=topic.id,
            title=titles[topic.id],
            asks=folio.line(next(iter(topic.file.modes.values()))),
            after=[titles[name] for name in topic.file.requires],
            minutes=sum(way.minutes or 0 for way in ways(topic, None, folio, minutes)),
            items=item_marks(all_items(topic), topic, folio.evidence),
        )
        for topic in folio.book.topics
    }
    in_columns = [[cards[topic.id] for topic in topics] for topics in by_column]
    return View(columns=in_columns, edges=" ".join(edges))

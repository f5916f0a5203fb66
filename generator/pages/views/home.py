"""The home page, the list of topics and the page of a topic: where reading begins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from generator.content.topic import Survivor
from generator.pages.draft import Draft
from generator.pages.elements.element import Aside, Block, Element
from generator.pages.environment import minutes_words
from generator.pages.views.ways import all_items, first_hour, item_marks, ways
from generator.printing.folio import Folio
from generator.values import units
from generator.values.filters import ended
from generator.values.value import Value, numeric

MARGIN = 1.35  # of the axis beyond the longest bar, for its number
NUMBER = 0.22  # of the axis, that a number takes on a phone
GAP = 8  # between the columns of the map, in per cent of its width
ABOUT = Markup(
    "Bar: peak memory, measured without a limit. Line: memory of a device. Hatched: what exceeds "
    "it."
)
DRAG = Markup("Drag the line; press a number for its run.")
TICK = Markup("Tick the rows that you expect to train. Then see what the runs did.")
LINE = Markup("Memory of a device")
BUTTON = Markup('<a class="pb-button{}" href="{}">{}</a>')


# --- the home page


class Bar(NamedTuple):
    """The peak memory of a rank: a bar with its number past its end or within it."""

    share: float  # of the axis
    peak: Markup
    is_within: bool


class TriedWay(NamedTuple):
    """A way to train: a bar for each rank, and how its run ended under the budget."""

    name: Markup
    bars: Sequence[Bar]
    need: float  # no line may lie below it for the run to fit
    outcome: str  # which readers do not see before they have answered
    fits: bool


@dataclass(frozen=True)
class MemoryGame(Element):
    """Bars of peak memory on one axis, of which readers say whether they fit under a line."""

    question: Markup
    about: Markup
    task: Markup
    budget: Markup
    rows: Sequence[TriedWay]
    line: Markup  # what it is
    next: Markup  # what a reader may do after it
    share: float  # of the axis, that lies below the line
    at: int  # where the line starts, in the unit of the axis
    top: float  # of the axis
    unit: str
    models: Sequence[str]  # of all games of the page
    place: int  # among them
    drag: str = DRAG  # what a reader does after the task

    def parts(self) -> Iterator[Element | Markup]:
        """What stands there before readers press a button."""
        yield from (self.question, self.about, self.task, self.budget)
        for row in self.rows:
            yield from (row.name, *(bar.peak for bar in row.bars))
        yield from (self.line, self.next)


@dataclass(frozen=True)
class GoOn(Element):
    """For readers who return: where they were, and what is due; a script fills and shows it."""

    IS_FOUND = False
    recalls: Sequence[tuple[str, str]]  # the address of each page of Recall, and its items


def home(draft: Draft) -> Iterator[Element | Markup]:
    """The home page."""
    folio, book = draft.folio, draft.folio.book
    yield draft.opening(folio.line(book.home.about))
    yield GoOn([
        (f"topics/{topic.id}/recall.html",
         item_marks(topic.items_by_mode["recall"], topic, folio.evidence))
        for topic in book.topics if "recall" in topic.items_by_mode
    ])  # fmt: skip
    yield from _games(folio)
    steps = first_hour(folio)
    begin = steps[0].href if steps else f"topics/{next(iter(book.lessons), 'index')}.html"
    buttons = {"guide.html": "My run fails"} if book.guide else {}
    buttons |= {"plan.html": "Will my model fit?"} if book.plan else {}
    buttons |= {"retracted.html": "Statements, tested"} if book.statements else {}
    yield Aside(Markup("\n").join([
        BUTTON.format(" pb-check", begin, "Begin: the first hour" if steps else "Begin"),
        *(BUTTON.format("", href, words) for href, words in buttons.items()),
    ]), "pb-operate")  # fmt: skip
    if book.home.facts:
        fact = Markup("<p><b>{}</b><br>{}</p>")
        facts = [fact.format(folio.line(of.lead), folio.line(of.says)) for of in book.home.facts]
        yield Block(facts, "pb-about")
    if book.home.licence:
        yield Block([draft.prose(book.home.licence)], "pb-aside")


def _games(folio: Folio) -> Iterator[MemoryGame]:
    """A game for each model of the home page that has runs; all have one axis."""
    models = folio.book.home.picture
    peaks = {way.run: _peaks(way.run, folio) for model in models for way in model.ways}
    top = MARGIN * max((numeric(peak) for of_run in peaks.values() for peak in of_run), default=0)
    unit, scale = units.of_axis(units.BYTES, top, 10)
    budgets = {model.called: folio.value(model.budget) for model in models}
    played = [
        model for model in models
        if budgets[model.called] and any(peaks[way.run] for way in model.ways)
    ]  # fmt: skip
    called = [folio.line(model.called) for model in played]
    for place, model in enumerate(played):
        budget = budgets[model.called]
        assert budget
        line = numeric(budget) / top
        ways = [way for way in model.ways if peaks[way.run]]
        rows = [_row(way, peaks[way.run], top, line, folio) for way in ways]
        yield MemoryGame(
            question=folio.line(model.question), about=ABOUT, task=DRAG if place else TICK,
            budget=folio.show(budget), share=round(line, 4),
            at=round(numeric(budget) / scale), top=round(top / scale, 2), unit=unit,
            rows=rows, line=LINE, next=folio.line(model.next), models=called, place=place,
        )  # fmt: skip


def _peaks(path: str, folio: Folio) -> list[Value]:
    run = folio.run(path)
    places = range(len(run.ranks)) if run else ()
    peaks = (folio.reading(path, "ranks", place, "memory", "peak_bytes") for place in places)
    return [peak for peak in peaks if peak is not None]


def _row(way: Survivor, peaks: Sequence[Value], top: float, line: float, folio: Folio) -> TriedWay:
    run, tried = folio.run(way.run), folio.run(way.budgeted)
    assert run is not None
    fits = tried is not None and tried.status == "completed"
    end = folio.reading(way.budgeted, by=ended)
    outcome = "trains" if fits else str(end.number) if end else "not run"
    shares = [round(numeric(peak) / top, 4) for peak in peaks]
    bars = [
        Bar(share, folio.show(peak), is_within=NUMBER < share < line < share + NUMBER)
        for share, peak in zip(shares, peaks, strict=True)
    ]
    name = escape(folio.strategy(run))
    if way.says:
        name = Markup("<span>{} <small>({})</small></span>").format(folio.line(way.says), name)
    return TriedWay(name, bars, max(shares), outcome, fits)


# --- the list of topics


CARD = Markup(
    '<li data-items="{}"><a href="{}/index.html">{}</a><p>{}</p>'
    '<p class="pb-quiet">{}{} <span class="pb-progress"></span></p></li>'
)
STEP = Markup(
    '<li data-page="{}" data-items="{}"><a href="{}">{}</a> <span class="pb-quiet">{}</span>'
    '<span class="pb-progress"></span><br>{}</li>'
)


@dataclass(frozen=True)
class TopicMap(Element):
    """Cards of topics in columns, each right of its requirements; a script ticks them off."""

    columns: Sequence[Sequence[Markup]]
    edges: str  # an SVG path of lines


@dataclass(frozen=True)
class WayList(Element):
    """Pages to read in order; a script ticks them off."""

    lines: Sequence[Markup]
    css: str


def topics(draft: Draft) -> Iterator[Element | Markup]:
    """The first hour, and all topics."""
    folio, minutes = draft.folio, draft.gathered.minutes
    yield draft.opening(draft.sheet.about)
    if steps := first_hour(folio, minutes):
        yield draft.heading(2, "First hour")
        total = minutes_words(sum(step.minutes for step in steps))
        yield Aside(total + " in all", "pb-quiet")
        lines = [
            STEP.format(
                step.page, step.items, folio.root + step.href, step.title,
                minutes_words(step.minutes), step.says,
            ) for step in steps
        ]  # fmt: skip
        yield WayList(lines, "pb-hour")
    yield draft.heading(2, "All topics")
    yield _topic_map(folio, minutes)


def _topic_map(folio: Folio, minutes: Mapping[str, int]) -> TopicMap:
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
    cards = {}
    for topic in folio.book.topics:
        after = Markup(", ").join(titles[name] for name in topic.file.requires)
        own_minutes = (way.minutes or 0 for way in ways(topic, None, folio, minutes))
        cards[topic.id] = CARD.format(
            item_marks(all_items(topic), topic, folio.evidence), topic.id, titles[topic.id],
            folio.line(next(iter(topic.file.modes.values()))), minutes_words(sum(own_minutes)),
            Markup('<span class="pb-map-after"> · after {}</span>').format(after) if after else "",
        )  # fmt: skip
    return TopicMap(
        [[cards[topic.id] for topic in topics] for topics in by_column], " ".join(edges)
    )


# --- a topic


@dataclass(frozen=True)
class Progress(Element):
    """How far a reader is with some items, which a script fills in."""

    IS_FOUND = False
    items: str  # as a link carries them


WAY = Markup(
    '<li><a href="{}.html" data-page="{}" data-items="{}"><span>{}</span>'
    '<span class="pb-progress"></span></a>\n<p>{}{}</p></li>'
)


def topic(draft: Draft) -> Iterator[Element | Markup]:
    """The page of a topic, which leads to its lessons."""
    folio, own = draft.folio, draft.sheet.topic
    assert own
    yield draft.lede(own.file.summary)
    yield Progress(item_marks(all_items(own), own, folio.evidence))
    took = Markup(' <span class="pb-quiet">{}</span>')
    yield WayList([
        WAY.format(
            way.mode, f"{own.id}/{way.mode}", way.items, way.word, way.question,
            took.format(minutes_words(way.minutes)) if way.minutes else "",
        ) for way in ways(own, None, folio, draft.gathered.minutes)
    ], "pb-ways")  # fmt: skip
    if own.file.key_laws:
        yield Aside(Markup(
            '<a href="summary.html">Summary</a>: made for printing. Read it after the lessons, '
            "because it gives away their results."
        ))  # fmt: skip

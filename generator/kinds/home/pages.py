"""The home page, and the page of a topic: where reading begins."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from markupsafe import Markup, escape

from proofbook.generator.content.book import Book
from proofbook.generator.content.topic import Fact, Survivor
from proofbook.generator.kinds.home.words import TopicList
from proofbook.generator.kinds.lessons import ways
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Block, Element, Made
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.sheets import HOME, Sheet
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.filters import ended
from proofbook.generator.values.value import Value, numeric
from proofbook.runners.system.kinds import filling

MARGIN = 1.35  # of the axis beyond the longest bar, for its number
TRAINS = "trains"  # the outcome of a run that completed
MINUTES, LABS = "Minutes are for reading and questions", "; a lab takes longer"


# --- the home page


def sheets(book: Book) -> Iterator[Sheet]:
    """Home, the path, and the page of each topic."""
    yield Sheet("index.md", "home", book.home.title, book.home.about, HOME)
    begin = "Begin with the first hour. Then take" if book.home.first_hour else "Take"
    about = "any topic whose predecessors you know; its lessons lead from a short introduction to"
    yield Sheet("topics/index.md", "topics", "Lessons", f"{begin} {about} exercises.")
    for topic in book.topics:
        path, file = f"topics/{topic.id}/index.md", topic.file
        written = f"content/topics/{topic.id}/topic.yml"
        yield Sheet(path, "topic", file.title, file.summary, written, topic=topic)


def former(_: Book, path: str) -> Sequence[str]:
    """The anchor of the lessons' heading when it was another."""
    return ["path"] * (path == "topics/index.md")


def home(draft: Draft) -> Iterator[Element | Markup]:
    """The home page."""
    folio, book = draft.folio, draft.folio.book
    yield draft.opening(folio.line(book.home.about))
    hrefs = [step.href for step in ways.first_hour(folio)]
    yield Made(
        "Begin", is_found=False, words=f"Begin{': the first hour' * bool(hrefs)}",
        href=[*hrefs, f"topics/{next(iter(book.lessons), 'index')}.html"][0],
        recalls=[
            (topic.id, ways.item_marks(topic.items_by_mode["recall"], topic, folio.evidence))
            for topic in book.topics if "recall" in topic.items_by_mode
        ],
    )  # fmt: skip
    yield _leads(book.home.doors, folio)
    yield from _games(folio)
    for made in filling("on home"):
        yield from made(draft)
    yield _leads(book.home.facts, folio)
    if book.home.licence:
        yield Block([draft.prose(book.home.licence)], "pb-aside")


def _leads(leads: Sequence[Fact], folio: Folio) -> Made:
    return Made("Leads", leads=[(folio.line(it.lead), folio.line(it.says)) for it in leads])


def _games(folio: Folio) -> Iterator[Made]:
    """A game for each model of the home page that has runs; all have one axis."""
    models = folio.book.home.picture
    peaks = {way.run: _of_ranks(way.run, folio) for model in models for way in model.ways}
    top = MARGIN * max((numeric(peak) for of_run in peaks.values() for peak in of_run), default=0)
    played = [
        (model, budget) for model in models
        if (budget := folio.value(model.budget)) and any(peaks[way.run] for way in model.ways)
    ]  # fmt: skip
    called = {place: folio.line(model.called) for place, (model, _) in enumerate(played)}
    for place, (model, budget) in enumerate(played):
        rows = [_row(way, peaks[way.run], top, folio) for way in model.ways if peaks[way.run]]
        yield Made(
            "MemoryGame", question=folio.line(model.question), budget=folio.show(budget), rows=rows,
            next=folio.line(model.next), share=round(numeric(budget) / top, 4),
            models=called, place=place, trains=TRAINS,
        )  # fmt: skip


def _of_ranks(path: str, folio: Folio, *reading: str) -> list[Value]:
    """A reading of the memory of each rank: its peak, or another."""
    run, last = folio.run(path), reading or ("peak_bytes",)
    places = range(len(run.ranks)) if run else ()
    found = (folio.reading(path, "ranks", place, "memory", *last) for place in places)
    return [*filter(None, found)]


def _row(way: Survivor, peaks: Sequence[Value], top: float, folio: Folio) -> Made:
    """A way to train: a bar for each rank, and how its run ended under the budget."""
    run, tried = folio.run(way.run), folio.run(way.budgeted)
    assert run is not None
    end = folio.reading(way.budgeted, by=ended)
    outcome = str(end.number) if end else "not run"
    kept = [numeric(one) for one in _of_ranks(way.run, folio, "at_peak", "parameters_bytes")]
    return Made(
        "TriedWay",
        says=folio.line(way.says) if way.says else Markup(),  # strategies that are little known
        strategy=escape(folio.strategy(run)),
        # Each its share of the axis, the share of it that parameters take, and the peak memory.
        bars=[
            (round(numeric(peak) / top, 4), round(of / numeric(peak), 4), folio.show(peak))
            for peak, of in zip(peaks, chain(kept, repeat(0)), strict=False)
        ],
        outcome=TRAINS if tried is not None and tried.status == "completed" else outcome,
    )


# --- a list of topics


def listed(fence: TopicList, _: int, draft: Draft) -> Iterator[Element]:
    """A row for each topic, with the topics that it requires."""
    folio, link = draft.folio, Markup('<a href="{}topics/{}/index.html">{}</a>')
    links = {
        topic.id: link.format(folio.root, topic.id, folio.in_link.line(topic.file.title))
        for topic in folio.book.topics
    }
    rows = [
        [
            links[topic.id],
            Markup("<code>{}</code>").format(topic.id),
            Markup(", ").join(links[name] for name in topic.file.requires) or "–",
        ]
        for topic in folio.book.topics
    ]
    yield Table(["Topic", fence.names, "Requires"], rows)


# --- a topic


def topic(draft: Draft) -> Iterator[Element | Markup]:
    """The page of a topic, which leads to its lessons."""
    folio, own = draft.folio, draft.topic
    yield draft.lede(own.file.summary)
    groups = ways.ways(own, folio, draft.gathered.minutes)
    yield Aside(escape(f"{MINUTES}{LABS * any(filling('steps.lab'))}."))
    yield Made("WayList", groups=groups, root="")

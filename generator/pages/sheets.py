"""Book → what its pages are, before any of them is printed. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from proofbook.generator.content.book import Book, Topic
from proofbook.generator.content.chain import DeepPage, chain
from proofbook.generator.content.handwritten import HandWritten
from proofbook.generator.content.lesson import DeepFile, Mode
from proofbook.generator.content.plan_page import PlanFile
from proofbook.generator.values.machines import Missing
from proofbook.runners.planner.answers.published import PEAKS
from proofbook.runners.system.kinds import kinds

HOME = "content/site.yml"
EVIDENCE = "evidence.md"
PLAN = "plan.md"


@dataclass(frozen=True)
class Sheet:
    """What one page is, before it is printed."""

    path: str  # under the site's root
    kind: str  # which function composes it (`compose.py`)
    heading: str  # its title, an author's line; of what runs measured, plain text
    about: str  # for search engines and previews
    source: str | None = None  # the file that an author edits
    topic: Topic | None = None
    mode: Mode | None = None  # of a lesson
    part: DeepPage | None = None  # of the chain of Deep
    text: str = ""  # the Markdown of a page by hand
    by_hand: HandWritten | None = None  # such a page, with the listings and quizzes of its fences
    machine: str | None = None  # on the page of one machine
    experiment: str | None = None  # on the page of one experiment's runs
    of: str = ""  # the name of what a page of another kind shows
    shows_traces: bool = False  # its title and what it is about are text of traces
    has_toc: bool = False
    under: str | None = None  # its page in the header, where that is not its folder's index
    missing: Missing | None = None  # here, where it shows the reference machine

    @property
    def is_recorded(self) -> bool:
        """Whether its title and what it is about are text of traces, and not an author's."""
        return bool(self.experiment or self.machine or self.shows_traces)


def sheets(book: Book) -> Iterator[Sheet]:
    """Yield the `Sheet` of every page of a book, lessons first: other pages list them."""
    for topic in book.topics:
        yield from _lessons(topic)
    for topic in book.topics:
        yield from _of_topic(topic)
    yield from _of_the_book(book)
    yield from _of_machines(book)
    if book.plan:
        yield from _of_plans(book, book.plan)
    for kind in kinds():
        if kind.sheets:
            yield from kind.take(kind.sheets)(book)
    for document in book.handwritten:
        file, page = document.source.file, document.model
        yield Sheet(
            file.partition("/pages/")[2], "handwritten", page.title, page.description, file,
            text=page.text or "\n", has_toc=True, by_hand=page,
        )  # fmt: skip


def _lessons(topic: Topic) -> Iterator[Sheet]:
    for mode, lesson in topic.lessons.items():
        model, path = lesson.model, f"topics/{topic.id}/{mode}"
        sheet = partial(Sheet, source=lesson.source.file, topic=topic, mode=mode)
        yield sheet(f"{path}.md", mode, model.title, topic.file.modes[mode])
        for part in chain(model) if isinstance(model, DeepFile) else ():
            about = part.opening or part.title
            yield sheet(f"{path}-{part.id}.md", "chain", part.title, about, part=part)


def _of_topic(topic: Topic) -> Iterator[Sheet]:
    """A topic's summary and its index."""
    folder, file = f"topics/{topic.id}", topic.file
    sheet = partial(Sheet, topic=topic)
    written, title = f"content/{folder}/topic.yml", f"Summary of “{file.title}”"
    if file.key_laws:
        yield sheet(f"{folder}/summary.md", "summary", title, file.summary, written)
    yield sheet(f"{folder}/index.md", "topic", file.title, file.summary, written)


def _of_the_book(book: Book) -> Iterator[Sheet]:
    """Home, the lists of topics, terms and claims."""
    yield Sheet("index.md", "home", book.home.title, book.home.about, HOME)
    begin = "Begin with the first hour. Then take" if book.home.first_hour else "Take"
    about = "any topic whose predecessors you know; its lessons lead from a short introduction to"
    yield Sheet("topics/index.md", "topics", "Path", f"{begin} {about} exercises.")
    if book.terms:
        about = "Each term with its definition and, where one exists, a run that shows it."
        yield Sheet("glossary.md", "glossary", "Glossary", about, "content/glossary.yml")
    about = (
        "For each experiment, this page says how many laws hold and how many observations turned "
        "out otherwise. The page of an experiment has each of its claims, with prediction, "
        "observation and verdict."
    )
    yield Sheet(EVIDENCE, "evidence", "Evidence", about, "content/claims", has_toc=True)


def _of_machines(book: Book) -> Iterator[Sheet]:
    """The machines, and the runs of each experiment."""
    sheet = partial(Sheet, under=EVIDENCE)
    about = "Each machine that ran experiments has a page: what it is, and what it measured."
    yield sheet("machines/index.md", "machines", "Machines", about)
    about = "What a machine is, and what it measured."
    for name in book.machines:
        yield sheet(f"machines/{name}.md", "machine", f"Machine {name}", about, machine=name)
    for name, on_page in book.traces.items():
        if not on_page.is_of_planner:
            path, title = f"evidence/{name}.md", f"The runs of {name}"
            yield sheet(path, "runs", title, on_page.trace.question, experiment=name)


def _of_plans(book: Book, plan: PlanFile) -> Iterator[Sheet]:
    """The page that leads to the models, and that of each model."""
    written = "content/planner/plan.yml"
    yield Sheet(PLAN, "plan", plan.title, plan.about, written, has_toc=True)
    if plan.published and PEAKS.experiment in book.traces:
        yield Sheet(
            "plan/published.md", "published", plan.published.title, plan.published.about,
            written, under=PLAN, has_toc=True, experiment=PEAKS.experiment,
        )  # fmt: skip
    for name in plan.models:
        on_page = book.traces[name]
        assert on_page.grid is not None
        title = plan.model_title.replace("{model}", on_page.grid.title)
        path = on_page.page.replace(".html", ".md")
        yield Sheet(path, "planned", title, plan.about, experiment=name, under=PLAN)

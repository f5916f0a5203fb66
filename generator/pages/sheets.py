"""Book → what its pages are, before any of them is printed. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generator.content.book import Book, Topic
from generator.content.chain import DeepPage, chain
from generator.content.handwritten import HandWritten
from generator.content.lesson import DeepFile, Mode
from generator.content.plan_page import PlanFile
from runners.planner.answers.published import PEAKS

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
    lab: str | None = None  # its name, on the page of a lab
    text: str = ""  # the Markdown of a page by hand
    by_hand: HandWritten | None = None  # such a page, with the listings and quizzes of its fences
    machine: str | None = None  # on the page of one machine
    experiment: str | None = None  # on the page of one experiment's runs
    symptom: str | None = None  # the id of one, on its page of the guide
    watched: str | None = None  # a script that `verify` watched, on its page
    has_toc: bool = False
    under: str | None = None  # its page in the header, where that is not its folder's index
    # Where it shows the reference machine, the experiments to measure before it does not.
    lacks: Sequence[str] | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether its title and what it is about are text of traces, and not an author's."""
        return bool(self.experiment or self.machine or self.watched)


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
    for name, watched in book.watched.items():
        yield Sheet(
            f"verify/{name}.md", "watched", f"Your run: {watched.report.script}",
            "A script that was watched: the verdict, and how its tensors compare.", watched=name,
        )  # fmt: skip
    for page in book.handwritten:
        yield Sheet(
            page.source.file.partition("/pages/")[2], "handwritten",
            page.model.title, page.model.description, page.source.file,
            text=page.model.text or "\n", has_toc=True, by_hand=page.model,
        )  # fmt: skip


def _lessons(topic: Topic) -> Iterator[Sheet]:
    for mode, lesson in topic.lessons.items():
        yield Sheet(
            f"topics/{topic.id}/{mode}.md", mode, lesson.model.title,
            topic.file.modes[mode], lesson.source.file, topic=topic, mode=mode,
        )  # fmt: skip
        for part in chain(lesson.model) if isinstance(lesson.model, DeepFile) else ():
            yield Sheet(
                f"topics/{topic.id}/{mode}-{part.id}.md", "chain", part.title,
                part.opening or part.title, lesson.source.file, topic=topic, mode=mode, part=part,
            )  # fmt: skip


def _of_topic(topic: Topic) -> Iterator[Sheet]:
    """A topic's labs, its summary and its index."""
    for name, lab in topic.labs.items():
        yield Sheet(
            f"topics/{topic.id}/lab-{name}.md", "lab", lab.model.title,
            lab.model.task, lab.source.file, topic=topic, lab=name,
        )  # fmt: skip
    folder, file = f"topics/{topic.id}", topic.file
    written = f"content/{folder}/topic.yml"
    if file.key_laws:
        title = f"Summary of “{file.title}”"
        summary = f"{folder}/summary.md"
        yield Sheet(summary, "summary", title, file.summary, written, topic=topic)
    index = f"{folder}/index.md"
    yield Sheet(index, "topic", file.title, file.summary, written, topic=topic)


def _of_the_book(book: Book) -> Iterator[Sheet]:
    """Home, the guide, the lists of topics, terms, claims and statements."""
    yield Sheet("index.md", "home", book.home.title, book.home.about, HOME)
    yield Sheet(
        "topics/index.md", "topics", "Path",
        f"{'Begin with the first hour. Then take' if book.home.first_hour else 'Take'} any topic "
        "whose predecessors you know; its lessons lead from a short introduction to exercises.",
    )  # fmt: skip
    if book.terms:
        yield Sheet(
            "glossary.md", "glossary", "Glossary",
            "Each term with its definition and, where one exists, a run that shows it.",
            "content/glossary.yml",
        )  # fmt: skip
    if book.guide:
        yield Sheet(
            "guide.md", "guide", book.guide.title, book.guide.about, "content/guide.yml",
            has_toc=True,
        )  # fmt: skip
        for _, symptom in book.guide.symptoms:
            yield Sheet(
                f"guide/{symptom.id}.md", "symptom", symptom.title, symptom.tell,
                "content/guide.yml", symptom=symptom.id, under="guide.md",
            )  # fmt: skip
    yield Sheet(
        EVIDENCE, "evidence", "Evidence",
        "For each experiment, this page says how many laws hold and how many observations turned "
        "out otherwise. The page of an experiment has each of its claims, with prediction, "
        "observation and verdict.",
        "content/claims", has_toc=True,
    )  # fmt: skip
    if book.statements:
        yield Sheet(
            "retracted.md", "retracted", "Common statements, tested",
            f"These are statements that people read about {book.home.subject}, in our words.",
            "content/statements.yml",
        )  # fmt: skip


def _of_machines(book: Book) -> Iterator[Sheet]:
    """The machines, and the runs of each experiment."""
    yield Sheet(
        "machines/index.md", "machines", "Machines",
        "Each machine that ran experiments has a page: what it is, and what it measured.",
        under=EVIDENCE,
    )  # fmt: skip
    for name in book.machines:
        yield Sheet(
            f"machines/{name}.md", "machine", f"Machine {name}",
            "What a machine is, and what it measured.", machine=name, under=EVIDENCE,
        )  # fmt: skip
    for name, on_page in book.traces.items():
        if not on_page.is_of_planner:
            title = f"The runs of {name}"
            yield Sheet(
                f"evidence/{name}.md", "runs", title, on_page.trace.question,
                experiment=name, under=EVIDENCE,
            )  # fmt: skip


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

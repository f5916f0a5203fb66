"""content/ → Book: everything authors wrote and runs measured, or every mistake at once.

In: a content folder (YAML, and traces as JSON) and which machine to show. Out: a `Book`, frozen.
Whether its expressions make sense is asked later, by `evidence.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from generator.content import content_files, handwritten, laws, tries
from generator.content.claim import (  # fmt: skip
    Claim,
    ClaimFile,
    Misconception,
    MisconceptionFile,
    Reference,
    ReferenceFile,
    Retraction,
    RetractionFile,
)
from generator.content.content_files import FileError
from generator.content.documents import Document, read
from generator.content.errors import ContentError, ContentErrors, nearest
from generator.content.glossary import GlossaryFile, Term
from generator.content.guide import GuideFile
from generator.content.handwritten import HandWritten
from generator.content.item_places import items_asked_by
from generator.content.laws import Laws
from generator.content.lesson import MODES, HomeFile, LessonFile, Mode, TopicFile
from generator.content.plan_page import PlanFile
from generator.content.quiz import Item, QuizFile
from generator.content.shelf import IsStale, Measured, Shelf, TraceOnPage, is_stale, on_page
from generator.content.words import Written
from generator.content.yaml_source import Source
from runners.traces.machine_records import Machine
from runners.traces.records import Run, Trace

__all__ = ["Book", "Lesson", "Topic", "TraceOnPage", "load"]

ModelT = TypeVar("ModelT", bound=Written)
PartT = TypeVar("PartT", Claim, Retraction, Misconception, Reference, Item, Term)


class Lesson(NamedTuple):
    """One mode of a topic."""

    model: LessonFile
    source: Source
    named: tuple[tuple[str, str], ...] = ()  # items, each with the field that names it


@dataclass(frozen=True)
class Topic:
    """A folder of `content/topics/`.

    Attributes:
        id: the folder's name, and the page's.
        file: topic.yml.
        lessons: by mode, in the order in which modes are suggested.
        items: the questions of quiz.yml and of any quiz-….yml, by id.
        items_by_mode: the ids that each mode asks, each once, in the order in which it asks them.
    """

    id: str
    file: TopicFile
    lessons: dict[Mode, Lesson]
    items: dict[str, Item]
    items_by_mode: dict[Mode, tuple[str, ...]]


@dataclass(frozen=True)
class Book:
    """Everything that pages are made from.

    Attributes:
        root: the folder that paths of listings start from: content's parent.
        claims: by id, one for each run that a claim is judged on.
        laws: which of them come of one claim, and what they were once called.
        traces: by experiment, as this book shows them.
        machine: the machine whose numbers the book shows.
        reference: the machine that stands in where that one has no trace.
        machines: every machine that has a folder: the one shown, the reference, the others.
        documents: every YAML file, for checks that need places.
        handwritten: the pages of content/pages.
        tries: what readers ran themselves; only where they were asked for.
        lost_tries: a line for each file among the tries that is none.
        terms: those of the glossary, in the order of the alphabet.
        synonyms: groups of words that the search takes for one another.
        leads: words that lead a search to an address of the site.
        alone: whole searches that do.
        guide: from symptoms to techniques; None where the book has none.
        plan: what the pages of plans say; None where the book has none.
    """

    root: Path
    home: HomeFile
    topics: tuple[Topic, ...]
    claims: dict[str, Claim]
    retractions: dict[str, Retraction]
    misconceptions: dict[str, Misconception]
    references: dict[str, Reference]
    traces: dict[str, TraceOnPage]
    machine: Machine
    reference: Machine
    laws: Laws = field(default_factory=Laws, repr=False)
    machines: dict[str, Measured] = field(default_factory=dict)
    documents: tuple[Document[Any], ...] = field(default=(), repr=False)
    handwritten: tuple[HandWritten, ...] = ()
    tries: tuple[Trace, ...] = ()
    lost_tries: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
    synonyms: tuple[tuple[str, ...], ...] = ()
    leads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    alone: Mapping[str, Sequence[str]] = field(default_factory=dict)
    guide: GuideFile | None = None
    plan: PlanFile | None = None

    def run(self, path: str) -> Run | None:
        """The run that `experiment.run` names, or None."""
        experiment, _, name = path.partition(".")
        shown = self.traces.get(experiment)
        return shown.runs.get(name) if shown else None

    def holder(self, path: str) -> TraceOnPage | None:
        """Where the run that `experiment.run` names is read, if its experiment was measured."""
        experiment, _, name = path.partition(".")
        shown = self.traces.get(experiment)
        return shown.holder(name) if shown else None

    def machine_of(self, path: str) -> str:
        """The machine that a run was measured on; empty where it is about no machine."""
        experiment, _, name = path.partition(".")
        return self.traces[experiment].machine_of(name)

    def topic_of(self, lesson: LessonFile) -> Topic:
        """The topic that a lesson belongs to."""
        return self._topics[id(lesson)]

    @cached_property
    def _topics(self) -> dict[int, Topic]:
        return {id(one.model): topic for topic in self.topics for one in topic.lessons.values()}

    @cached_property
    def item_places(self) -> dict[str, tuple[Document[Any], tuple[str | int, ...]]]:
        """Where each item is written: its document, and the path in it."""
        return {
            item.id: (document, ("items", position))
            for document in self.documents
            if isinstance(document.model, QuizFile)
            for position, item in enumerate(document.model.items)
        }

    @cached_property
    def is_reference(self) -> bool:
        """Whether the machine shown is the reference machine."""
        return self.machine.name == self.reference.name

    @cached_property
    def on_reference(self) -> Book | None:
        """The same book with the reference machine's traces first; None where they are anyway."""
        first = self.machines.get(self.reference.name)
        if self.is_reference or first is None:
            return None
        others = [one for one in self.machines.values() if one is not first]
        traces = {
            name: replace(one, machine=self.reference)
            if one.is_plan
            else on_page(name, (first, *others), first) or one
            for name, one in self.traces.items()
        }
        return replace(self, traces=traces, machine=self.reference)


@dataclass
class _Loader:
    """Reads a content folder and keeps every error it meets."""

    content: Path
    errors: list[ContentError] = field(default_factory=list)
    documents: list[Document[Any]] = field(default_factory=list)

    def name(self, path: Path) -> str:
        return path.relative_to(self.content.parent).as_posix()

    def refuse(self, path: Path, message: str) -> None:
        self.errors.append(ContentError(self.name(path), 0, 0, message))

    def read(self, path: Path, model: type[ModelT]) -> Document[ModelT] | None:
        try:
            document = read(self.name(path), content_files.text_of(path), model)
        except ContentErrors as error:
            self.errors += error.errors
            return None
        except FileError as error:
            self.errors.append(ContentError(self.name(path), error.line, error.column, str(error)))
            return None
        self.documents.append(document)
        return document

    def parts(
        self, document: Document[Any] | None, key: str, found: dict[str, PartT], word: str
    ) -> None:
        """Add the parts of a file by id; an id twice is an error at its second place."""
        for position, part in enumerate(getattr(document.model, key) if document else ()):
            if part.id in found:
                path = (key, position, "id")
                assert document is not None
                self.errors.append(document.error(path, f"duplicate {word} id {part.id!r}"))
            found[part.id] = part

    def claims(self) -> Iterator[Document[ClaimFile]]:
        found: dict[str, Claim] = {}
        for path in content_files.found_in(self.content / "claims", "*.yml"):
            document = self.read(path, ClaimFile)
            self.parts(document, "claims", found, "claim")
            if document:
                yield document

    def topics(self) -> Iterator[Topic]:
        items: dict[str, Item] = {}
        for folder in content_files.found_in(self.content / "topics", "*/"):
            if not content_files.found_in(folder, "*.yml"):
                continue
            topic = self.topic(folder, items)
            if topic:
                yield topic

    def topic(self, folder: Path, items: dict[str, Item]) -> Topic | None:
        known = {"topic", "quiz", *MODES}
        for path in content_files.found_in(folder, "*.y*ml"):
            if path.suffix == ".yml" and path.stem.startswith("quiz-"):
                continue
            if path.stem not in known or path.suffix != ".yml":
                hint = nearest(path.name, [f"{stem}.yml" for stem in known])
                self.refuse(path, f"no mode has this name{hint}")
        if not (folder / "topic.yml").exists():
            self.refuse(folder, "no topic.yml")
            return None
        file = self.read(folder / "topic.yml", TopicFile)
        own: dict[str, Item] = {}
        found = content_files.found_in(folder, "quiz*.yml")  # quiz.yml first, then quiz-deep.yml
        for path in sorted(found, key=lambda one: one.stem):
            quiz = self.read(path, QuizFile)
            self.parts(quiz, "items", items, "item")
            own |= {item.id: item for item in quiz.model.items} if quiz else {}
        lessons = self.lessons(folder, file)
        if file is None:
            return None
        asks = {mode: items_asked_by(one.model, own, one.named) for mode, one in lessons.items()}
        ids = {mode: tuple(dict.fromkeys(one.item.id for one in asks[mode])) for mode in asks}
        return Topic(folder.name, file.model, lessons, own, ids)

    def lessons(self, folder: Path, file: Document[TopicFile] | None) -> dict[Mode, Lesson]:
        found: dict[Mode, Lesson] = {}
        declared = file.model.modes if file else {}
        for mode, model in MODES.items():
            path = folder / f"{mode}.yml"
            if not path.exists():
                if file and mode in declared:
                    message = f"mode {mode!r} has no {self.name(path)}"
                    self.errors.append(file.source.error(("modes", mode), message, at_key=True))
                continue
            if file and mode not in declared:
                message = f"{path.name} stands in the folder, but not under modes"
                self.errors.append(file.source.error(("modes",), message, at_key=True))
            document = self.read(path, model)
            if document:
                found[mode] = Lesson(document.model, document.source, document.items_named)
        return found

    def handwritten(self) -> Iterator[HandWritten]:
        folder = self.content / "pages"
        for path in handwritten.files(folder):
            if path.suffix == ".md":
                try:
                    yield handwritten.read(folder, path, self.name(path))
                except ContentErrors as error:
                    self.errors += error.errors

    def if_there(self, path: Path, model: type[ModelT]) -> Document[ModelT] | None:
        """A file that a book may lack."""
        return self.read(path, model) if path.exists() else None

    def glossary(self) -> GlossaryFile:
        document = self.if_there(self.content / "glossary.yml", GlossaryFile)
        self.parts(document, "terms", {}, "term")
        return document.model if document else GlossaryFile(terms=[])

    def home(self) -> HomeFile | None:
        path = self.content / "site.yml"
        if not path.exists():
            self.refuse(path, "no such file; the book needs a home page")
            return None
        document = self.read(path, HomeFile)
        return document.model if document else None


def _ranked(retractions: Mapping[str, Retraction], first: Collection[str]) -> dict[str, Retraction]:
    """The statements that the home page names, in its order; then the others as written."""
    names = dict.fromkeys([*(name for name in first if name in retractions), *retractions])
    return {name: retractions[name] for name in names}


def load(
    content: Path,
    machine: str | None = None,
    is_stale: IsStale = is_stale,
    *,
    with_tries: bool = False,
    only: Collection[str] | None = None,
    with_new: bool = False,
) -> Book:
    """Read a content folder.

    Args:
        content: the folder with topics/, claims/ and traces/.
        machine: the folder's name under traces/; by default PROOFBOOK_MACHINE, then the name in
            traces/this-machine, then the reference machine.
        is_stale: tells whether the code of a trace's experiment has changed since.
        with_tries: whether to read what readers tried; only while serving.
        only: the machines that may be shown; all of them by default.
        with_new: whether runs that none of these has are shown as this machine measured them.

    Raises:
        ContentErrors: everything wrong with any file.
    """
    loader = _Loader(content.resolve())
    shelf = Shelf(loader.content, is_stale, loader.errors, only, with_new)
    home = loader.home()
    topics = sorted(loader.topics(), key=lambda topic: (topic.file.order, topic.id))
    written = list(loader.claims())
    retractions: dict[str, Retraction] = {}
    misconceptions: dict[str, Misconception] = {}
    references: dict[str, Reference] = {}
    said = loader.if_there(loader.content / "statements.yml", RetractionFile)
    loader.parts(said, "statements", retractions, "statement")
    believed = loader.if_there(loader.content / "misconceptions.yml", MisconceptionFile)
    loader.parts(believed, "misconceptions", misconceptions, "misconception")
    cited = loader.if_there(loader.content / "references.yml", ReferenceFile)
    loader.parts(cited, "references", references, "reference")
    references |= shelf.published_references()
    retractions = _ranked(retractions, home.statements if home else [])
    guide = loader.if_there(loader.content / "guide.yml", GuideFile)
    words = loader.glossary()
    plan = loader.if_there(loader.content / "planner" / "plan.yml", PlanFile)
    pages = tuple(loader.handwritten())
    machines = shelf.machines(machine)
    shown, reference = shelf.first_two(machines)
    on_pages = shelf.on_pages(machines)
    on_pages |= shelf.plans(shown.machine) if shown else {}
    judged = laws.of_documents(written, on_pages, loader.errors) if on_pages else Laws()
    if loader.errors or not (home and shown and reference):
        faults = [fault for document in loader.documents for fault in document.text_faults()]
        faults += [fault for page in pages for fault in page.faults()]
        raise ContentErrors([*loader.errors, *faults])
    tried, lost = tries.read(loader.content / "tries") if with_tries else ((), ())
    return Book(
        root=loader.content.parent, home=home, topics=tuple(topics), claims=judged.claims,
        retractions=retractions, misconceptions=misconceptions, references=references,
        traces=on_pages, machine=shown.machine, reference=reference.machine, laws=judged,
        machines=machines, documents=tuple(loader.documents), handwritten=pages, tries=tried,
        lost_tries=lost,
        terms=tuple(sorted(words.terms, key=lambda one: one.term.lower())),
        leads=words.leads, alone=words.alone, synonyms=tuple(map(tuple, words.synonyms)),
        plan=plan.model if plan else None,
        guide=guide.model if guide else None,
    )  # fmt: skip

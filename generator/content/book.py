"""content/ → Book: everything authors wrote and runs measured, or every mistake at once.

In: a content folder (YAML, and traces as JSON) and which machine to show. Out: a `Book`, frozen.
Whether its expressions make sense is asked later, by `values/`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from generator.content import handwritten
from generator.content.cases import ClaimIndex, claim_index
from generator.content.claim import (
    Claim,
    ClaimFile,
    Misconception,
    MisconceptionFile,
    Reference,
    ReferenceFile,
    Statement,
    StatementFile,
)
from generator.content.documents import Document, read
from generator.content.errors import ContentError, ContentErrors, Files, found_in, nearest
from generator.content.exhibit import Figure
from generator.content.glossary import GlossaryFile, Term
from generator.content.guide import GuideFile
from generator.content.handwritten import HandWritten
from generator.content.lab import LabFile
from generator.content.lesson import MODES, LessonFile, Mode, RecallFile
from generator.content.plan_page import PlanFile
from generator.content.quiz import Item, QuizFile
from generator.content.shelf import (
    IsStale,
    MachineFolder,
    Shelf,
    TraceOnPage,
    on_page,
    published_references,
)
from generator.content.topic import HomeFile, TopicFile
from generator.content.words import Written
from runners.planner.answers.published import is_stale
from runners.traces import files as traces
from runners.traces.records import Machine, Run, Trace
from runners.traces.schema import digest_of
from runners.verify.trace import SUFFIX, Watched
from runners.verify.trace import read as read_watched

__all__ = ["Book", "Topic", "TraceOnPage", "load"]

ModelT = TypeVar("ModelT", bound=Written)
FILES: dict[str, type[Written]] = {  # of a book, in the order in which they are read
    "site.yml": HomeFile,
    "misconceptions.yml": MisconceptionFile,
    "topics/*/topic.yml": TopicFile,
    "topics/*/quiz*.yml": QuizFile,
    **{f"topics/*/{mode}.yml": model for mode, model in MODES.items()},
    "topics/*/labs/*/lab.yml": LabFile,
    "claims/*.yml": ClaimFile,
    "statements.yml": StatementFile,
    "references.yml": ReferenceFile,
    "glossary.yml": GlossaryFile,
    "guide.yml": GuideFile,
    "planner/plan.yml": PlanFile,
}


@dataclass(frozen=True)
class Topic:
    """A folder of `content/topics/`.

    Attributes:
        id: the folder's name, and the page's.
        file: topic.yml.
        lessons: by mode, in the order in which modes are suggested.
        items: the questions of quiz.yml and of any quiz-….yml, by id.
        items_by_mode: the ids that each mode asks, each once, in the order in which it asks them.
        labs: by name, in their order.
    """

    id: str
    file: TopicFile
    lessons: dict[Mode, Document[LessonFile]]
    items: dict[str, Item]
    items_by_mode: dict[Mode, tuple[str, ...]]
    labs: dict[str, Document[LabFile]]

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures of its lessons, as others name them: `deep#ring`."""
        return {
            f"{mode}#{one.id}": one
            for mode, lesson in self.lessons.items()
            for one in lesson.model.figures
        }


@dataclass(frozen=True)
class Book:
    """Everything that pages are made from.

    Attributes:
        root: the folder that paths of listings start from: content's parent.
        claims: by id, one for each run that a claim is judged on.
        claim_index: which of them come of one claim.
        traces: by experiment, as this book shows them.
        machine: the machine whose numbers the book shows.
        reference: the machine that stands in where that one has no trace.
        machines: every machine that has a folder: the one shown, the reference, the others.
        documents: every YAML file, for checks that need places.
        tries: what readers ran themselves; only where they were asked for.
        watched: scripts that readers had `verify` watch, the newest first; as `tries`.
        unread: the files of both that cannot be read.
        verified: reports of `verify` that the book shows, by the path of the program.
        glossary: as written; a book without the file has one without terms.
        guide: from symptoms to techniques; None where the book has none.
        plan: what the pages of plans say; None where the book has none.
    """

    root: Path
    home: HomeFile
    topics: tuple[Topic, ...]
    claims: dict[str, Claim]
    statements: dict[str, Statement]
    misconceptions: dict[str, Misconception]
    references: dict[str, Reference]
    given: dict[str, float]
    traces: dict[str, TraceOnPage]
    machine: Machine
    reference: Machine
    claim_index: ClaimIndex = field(repr=False)
    machines: dict[str, MachineFolder]
    documents: tuple[Document[Any], ...] = field(repr=False)
    tries: tuple[Trace, ...]
    watched: dict[str, Watched]
    unread: tuple[ContentError, ...]
    verified: dict[str, Watched]
    glossary: GlossaryFile
    guide: GuideFile | None
    plan: PlanFile | None

    @cached_property
    def terms(self) -> list[Term]:
        """Those of the glossary, in the order of the alphabet."""
        return sorted(self.glossary.terms, key=lambda one: one.term.lower())

    @property
    def handwritten(self) -> list[Document[HandWritten]]:
        """The pages of content/pages."""
        return [one for one in self.documents if isinstance(one.model, HandWritten)]

    @cached_property
    def handwritten_by_name(self) -> dict[str, HandWritten]:
        """The pages of content/pages, each by its path there without `.md`."""
        return {
            one.source.file.partition("/pages/")[2].removesuffix(".md"): one.model
            for one in self.handwritten
        }

    @cached_property
    def exhibited(self) -> dict[str, Figure]:
        """The figures that items show below their stems, by the id of the item or of its case."""
        return {
            one.id: figure
            for topic in self.topics
            for item in topic.items.values()
            for one in (item, *item.others)
            if one.exhibit
            and (figure := one.exhibit.drawing or topic.figures.get(one.exhibit.figure or ""))
        }

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
        """The machine that measured the run `experiment.run`; empty for plans."""
        experiment, _, name = path.partition(".")
        return self.traces[experiment].machine_of(name)

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
            if one.is_of_planner
            else on_page(name, (first, *others), first) or one
            for name, one in self.traces.items()
        }
        return replace(self, traces=traces, machine=self.reference)


@dataclass
class _Loader(Files):
    """Reads what authors wrote, and keeps every document and every mistake."""

    documents: list[Document[Any]] = field(default_factory=list)

    def read(self) -> None:
        """Every file of YAML, and the pages that are written by hand."""
        if not (self.content / "site.yml").exists():
            said = "no such file; the book needs a home page. Is this the folder of a book?"
            self.refuse(self.content / "site.yml", said)
        beliefs: frozenset[tuple[str, str]] = frozenset()
        for pattern, model in FILES.items():
            for path in found_in(self.content, pattern):
                self.keep(path, lambda *held, of=model, by=beliefs: read(*held, of, by))
            if model is MisconceptionFile:
                known = self.parts(MisconceptionFile, "misconceptions")
                beliefs = frozenset((name, one.refuted_by) for name, one in known.items())
        for path in handwritten.files(self.content / "pages"):
            if path.suffix == ".md":
                self.keep(path, handwritten.read)

    def keep(self, path: Path, read_one: Callable[[str, str], Document[Any]]) -> None:
        """Keep what is read from the name and the text of a file."""
        document = self.trying(lambda one: read_one(self.name(one), self.text_of(one)), path)
        if document:
            self.documents.append(document)

    def tries(self) -> tuple[tuple[Trace, ...], dict[str, Watched], tuple[ContentError, ...]]:
        """What a reader ran, the oldest first, and had watched, the newest first."""
        files = Files(self.content)  # a try that cannot be read is no mistake of the book
        paths = found_in(self.content / "tries", "*.json")
        runs = [path for path in paths if not path.name.endswith(SUFFIX)]
        found = [one for path in runs if (one := files.trying(traces.read, path))]
        watched = {
            path.name.removesuffix(SUFFIX): seen
            for path in paths
            if path not in runs and (seen := files.trying(read_watched, path))
        }
        newest = sorted(watched.items(), key=lambda one: one[1].recorded_at, reverse=True)
        runs_in_order = sorted(found, key=lambda one: one.recorded_at)
        return tuple(runs_in_order), dict(newest), tuple(files.errors)

    def verified(self) -> Iterator[tuple[str, Watched]]:
        """The reports beside the programs of `content/verified`."""
        for path in found_in(self.content / "verified", "*.json"):
            program = path.with_suffix(".py")
            if one := self.trying(read_watched, path):
                if not program.is_file() or one.code != digest_of(self.text_of(program)):
                    again = f"`python -m runners {one.command}`, and copy the trace"
                    self.refuse(path, f"{program.name} is another program now; {again}")
                yield self.name(program), one

    def of(self, model: type[ModelT]) -> list[Document[ModelT]]:
        """The files of a kind."""
        return [one for one in self.documents if isinstance(one.model, model)]

    def parts(self, model: type[Written], key: str) -> dict[str, Any]:
        """The parts of the files of a kind by id."""
        return {one.id: one for file in self.of(model) for one in getattr(file.model, key)}

    def refuse_doubles(self) -> None:
        """Refuse an id that stands twice: of a figure in its file, of all else in the book."""
        known: dict[tuple[str, str, str], ContentError] = {}
        for document in self.documents:
            for one in document.fields:
                if one.path[-1] == "id":
                    kind = str(one.path[-3]).removesuffix("s")
                    id_ = (kind, one.text, document.source.file if kind == "figure" else "")
                    if first := known.get(id_):
                        said = f"duplicate {kind} id {one.text!r}; {first.place} has it already"
                        self.errors.append(document.error(one.path, said))
                    else:
                        known[id_] = document.error(one.path, "")

    def topics(self) -> Iterator[Topic]:
        """The folders of topics/ that hold a topic."""
        for folder in found_in(self.content / "topics", "*/"):
            if found_in(folder, "*.yml") and (topic := self.topic(folder)):
                yield topic

    def topic(self, folder: Path) -> Topic | None:
        known = [f"{stem}.yml" for stem in ("topic", "quiz", *MODES)]
        for path in found_in(folder, "*.y*ml"):
            if path.name not in known and not path.match("quiz-*.yml"):
                self.refuse(path, f"no mode has this name{nearest(path.name, known)}")
        if not (folder / "topic.yml").exists():
            self.refuse(folder, "no topic.yml")
        files = {self.content.parent / one.source.file: one for one in self.documents}
        own = {path.stem: one for path, one in files.items() if path.parent == folder}
        file = own.get("topic")
        if file is None:
            return None
        stands = [one for one in MODES if (folder / f"{one}.yml").exists()]
        for mode in (one for one in MODES if (one in file.model.modes) != (one in stands)):
            where = "under modes:, but not" if mode in file.model.modes else "not under modes:, but"
            message = f"{mode!r} stands {where} in the folder"
            self.errors.append(file.error(("modes", mode), message))
        quizzes = [own[stem] for stem in sorted(own) if stem.startswith("quiz")]
        items = {item.id: item for quiz in quizzes for item in quiz.model.items}
        lessons = {mode: own[mode] for mode in MODES if mode in own}
        asked = {mode: _asked_by(one, items) for mode, one in lessons.items()}
        labs = {
            path.parent.name: one for path, one in files.items()
            if isinstance(one.model, LabFile) and path.parent.parent.parent == folder
        }  # fmt: skip
        in_order = dict(sorted(labs.items(), key=lambda one: one[1].model.order))
        return Topic(folder.name, file.model, lessons, items, asked, in_order)


def _asked_by(lesson: Document[LessonFile], items: Mapping[str, Item]) -> tuple[str, ...]:
    """The items that a lesson asks, each once; Recall asks all of its topic's."""
    if isinstance(lesson.model, RecallFile):
        return tuple(name for name in items if name not in lesson.model.leave_out)
    named = (one.text for one in lesson.fields if one.mark == "item")
    return tuple(dict.fromkeys(name for name in named if name in items))


def quizzes(root: Path, folder: Path) -> tuple[Book, list[ContentError]]:
    """The questions of a site that is no book, as a book with one topic, and without runs.

    Args:
        root: the folder from which messages name files.
        folder: below it, with the files of questions.

    Returns:
        The book, and everything wrong with any file.
    """
    loader = _Loader(root / folder.name)
    for path in found_in(folder, "**/*.y*ml"):
        loader.keep(path, lambda *held: read(*held, QuizFile))
    loader.refuse_doubles()
    items = loader.parts(QuizFile, "items")
    topic = Topic("", TopicFile.model_construct(), {}, items, {}, {})
    machine = Machine.model_construct(name="")
    return Book(
        root=root, home=HomeFile.model_construct(), topics=(topic,), claims={}, statements={},
        misconceptions={}, references={}, given={}, traces={}, machine=machine, reference=machine,
        claim_index=ClaimIndex(), machines={}, documents=tuple(loader.documents), tries=(),
        watched={}, unread=(), verified={},
        glossary=GlossaryFile(terms=[]), guide=None, plan=None,
    ), loader.errors  # fmt: skip


def documents(content: Path) -> tuple[list[Document[Any]], list[ContentError]]:
    """What authors wrote, file by file, and what is wrong with the files left out."""
    loader = _Loader(content.resolve())
    loader.read()
    return loader.documents, loader.errors


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
    loader.read()
    topics = sorted(loader.topics(), key=lambda topic: (topic.file.order, topic.id))
    loader.refuse_doubles()
    statements = loader.parts(StatementFile, "statements")
    references = loader.parts(ReferenceFile, "references")
    shelf = Shelf(loader, is_stale, only, with_new)
    machines = shelf.machines(machine)
    shown, reference = shelf.first_two(machines)
    on_pages = shelf.on_pages(machines)
    references |= {one.id: one for one in published_references(on_pages)}
    verified = dict(loader.verified())
    judged = claim_index(loader.of(ClaimFile))
    if loader.errors or not (shown and reference):
        faults = (fault for document in loader.documents for fault in document.text_faults())
        raise ContentErrors([*loader.errors, *faults])
    (home,), guides, plans = loader.of(HomeFile), loader.of(GuideFile), loader.of(PlanFile)
    glossary = loader.of(GlossaryFile)
    tries, watched, unread = loader.tries() if with_tries else ((), {}, ())
    first = [name for name in home.model.statements if name in statements]
    return Book(
        root=loader.content.parent, home=home.model, topics=tuple(topics), claims=judged.claims,
        statements={name: statements[name] for name in dict.fromkeys([*first, *statements])},
        misconceptions=loader.parts(MisconceptionFile, "misconceptions"),
        given={k: v for file in loader.of(ReferenceFile) for k, v in file.model.given.items()},
        references=references, traces=on_pages,
        machine=shown.machine, reference=reference.machine, claim_index=judged, machines=machines,
        documents=tuple(loader.documents),
        tries=tries, watched=watched, unread=unread, verified=verified,
        glossary=glossary[0].model if glossary else GlossaryFile(terms=[]),
        plan=plans[0].model if plans else None, guide=guides[0].model if guides else None,
    )  # fmt: skip

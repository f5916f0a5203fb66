"""content/ → Book: everything authors wrote and runs measured, or every mistake at once.

In: a content folder (YAML, and traces as JSON) and which machine to show. Out: a `Book`.
Whether its expressions make sense is asked later, by `values/`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from proofbook.generator.content import claim, errors, handwritten
from proofbook.generator.content.book import Book, Topic
from proofbook.generator.content.cases import claim_index
from proofbook.generator.content.documents import Document, read
from proofbook.generator.content.lesson import MODES, LessonFile
from proofbook.generator.content.quiz import Item
from proofbook.generator.content.shelf import IsStale, Shelf, standing
from proofbook.generator.content.topic import HomeFile, TopicFile
from proofbook.generator.content.words import Written
from proofbook.runners.core.trace.records import Trace
from proofbook.runners.system.kinds import kinds
from proofbook.runners.traces import files as traces

ModelT = TypeVar("ModelT", bound=Written)
_FILES: dict[str, type[Written]] = {  # of a book, in the order in which they are read
    "site.yml": HomeFile,
    "misconceptions.yml": claim.MisconceptionFile,
    "topics/*/topic.yml": TopicFile,
    "claims/*.yml": claim.ClaimFile,
    "references.yml": claim.ReferenceFile,
}


@cache
def file_models() -> dict[str, type[Written]]:
    """The model of each file of a book by the pattern of its path, in the order of reading."""
    more = (
        (pattern, kind.take(model)) for kind in kinds() for pattern, model in kind.files.items()
    )
    return {**_FILES, **dict(more)}


@dataclass
class Loader(errors.Files):
    """Reads what authors wrote, and keeps every document and every mistake."""

    documents: list[Document[Any]] = field(default_factory=list)

    def read(self) -> None:
        """Read YAML files and handwritten pages into `documents`, their mistakes into `errors`."""
        if not (self.content / "site.yml").exists():
            message = "no such file; the book needs a home page. Is this the folder of a book?"
            self.refuse(self.content / "site.yml", message)
        for folder in {Path(pattern).parent for pattern in file_models()}:
            for path in errors.visible_files(self.content, f"{folder}/*.yaml"):
                self.refuse(path, f"files of a book end in `.yml`; rename it to {path.stem}.yml")
        beliefs: frozenset[tuple[str, str]] = frozenset()
        for pattern, model in file_models().items():
            for path in errors.visible_files(self.content, pattern):
                self.keep(path, lambda *held, of=model, by=beliefs: read(*held, of, by))
            if model is claim.MisconceptionFile:
                known = self.parts(claim.MisconceptionFile, "misconceptions")
                beliefs = frozenset((name, belief.refuted_by) for name, belief in known.items())
        pages = handwritten.files(self.content / "pages")
        for path in (path for path in pages if path.suffix == ".md"):
            self.keep(path, handwritten.read)
        self.documents = [
            document for document in self.documents if not handwritten.is_left_out(document.model)
        ]

    def keep(self, path: Path, read_one: Callable[[str, str], Document[Any]]) -> None:
        """Read a file by `read_one(name, text)` into `documents`, or its mistakes into `errors`."""
        document = self.read_or_refuse(
            lambda _: read_one(self.name(path), self.text_of(path)), path
        )
        if document:
            self.documents.append(document)

    def tries(self) -> tuple[tuple[Trace, ...], tuple[errors.ContentError, ...]]:
        """(runs, oldest first; errors) of `tries/`, without what companions wrote there."""
        files = errors.Files(self.content)  # a try that cannot be read is no mistake of the book
        others = tuple(end for kind in kinds() for end in kind.tries)
        paths = errors.visible_files(self.content / "tries", "*.json")
        runs = (files.read_or_refuse(traces.read, p) for p in paths if not p.name.endswith(others))
        in_order = sorted(filter(None, runs), key=lambda trace: trace.recorded_at)
        return tuple(in_order), tuple(files.errors)

    def parts_of_kinds(self, *, with_tries: bool) -> dict[type, Any]:
        """What kinds of pages and companions read besides, each by its type."""
        read = [kind.take(kind.reads)(self, with_tries) for kind in kinds() if kind.reads]
        return {type(part): part for part in read}

    def of(self, model: type[ModelT]) -> list[Document[ModelT]]:
        """The documents of a model."""
        return [document for document in self.documents if isinstance(document.model, model)]

    def parts(self, model: type[Written], key: str) -> dict[str, Any]:
        """The parts under `key` in all documents of a model, by id."""
        return {part.id: part for file in self.of(model) for part in getattr(file.model, key)}

    def refuse_doubles(self) -> None:
        """Add errors on duplicate ids: of figures in a file, of other parts in the book."""
        known: dict[tuple[str, str, str], errors.ContentError] = {}
        for document in self.documents:
            for text in document.fields:
                if text.path[-1] == "id":
                    kind = str(text.path[-3]).removesuffix("s")
                    id_ = (kind, text.text, document.source.file if kind == "figure" else "")
                    if first := known.get(id_):
                        message = f"duplicate {kind} id {text.text!r}; {first.place} has it already"
                        self.errors.append(document.error(text.path, message))
                    else:
                        known[id_] = document.error(text.path, "")

    def topics(self) -> Iterator[Topic]:
        """The topics, one for each folder of topics/ with YAML files."""
        for folder in errors.visible_files(self.content / "topics", "*/"):
            if errors.visible_files(folder, "*.yml") and (topic := self.topic(folder)):
                yield topic

    def topic(self, folder: Path) -> Topic | None:
        """The topic of a folder, if its `topic.yml` can be read."""
        known = [f"{stem}.yml" for stem in ("topic", "quiz", *MODES)]
        for path in errors.visible_files(folder, "*.yml"):
            if path.name not in known and not path.match("quiz-*.yml"):
                self.refuse(path, f"no mode has this name{errors.nearest(path.name, known)}")
        if not (folder / "topic.yml").exists():
            self.refuse(folder, "no topic.yml")
        root = self.content.parent
        files = {root / document.source.file: document for document in self.documents}
        own = {path.stem: document for path, document in files.items() if path.parent == folder}
        file = own.get("topic")
        if file is None:
            return None
        stands = [mode for mode in MODES if (folder / f"{mode}.yml").exists()]
        for mode in (own for own in MODES if (own in file.model.modes) != (own in stands)):
            where = "under modes:, but not" if mode in file.model.modes else "not under modes:, but"
            message = f"{mode!r} stands {where} in the folder"
            self.errors.append(file.error(("modes", mode), message))
        quizzes = [own[stem] for stem in sorted(own) if stem.startswith("quiz")]
        items = {question.id: question for quiz in quizzes for question in quiz.model.items}
        lessons = {mode: own[mode] for mode in MODES if mode in own}
        by_mode = {mode: _items_of(lesson, items) for mode, lesson in lessons.items()}
        return Topic(folder.name, file.model, lessons, items, by_mode)


def _items_of(lesson: Document[LessonFile], items: Mapping[str, Item]) -> tuple[str, ...]:
    """The items that a lesson asks, each once."""
    named = (field.text for field in lesson.fields if field.mark == "item")
    return tuple(dict.fromkeys(lesson.model.asked(named, items)))


def documents(content: Path) -> tuple[list[Document[Any]], list[errors.ContentError]]:
    """The valid documents of a content folder, and the errors of all others."""
    loader = Loader(content.resolve())
    loader.read()
    return loader.documents, loader.errors


def is_stale(trace: Trace) -> bool:
    """Whether the code of a trace has changed since, measured or brought by a companion."""
    own = (kind.take(kind.is_stale)(trace) for kind in kinds() if kind.is_stale)
    known = next((stale for stale in own if stale is not None), None)
    return traces.is_stale(trace) if known is None else bool(known)


def load(
    content: Path,
    machine: str | None = None,
    is_stale: IsStale = is_stale,
    *,
    with_tries: bool = False,
    only: Collection[str] | None = None,
    with_new: bool = False,
) -> Book:
    """The book of a content folder and of the traces to show; ContentErrors holds every mistake.

    `machine`, `only` and `with_new` are as in `Shelf`; `is_stale` tells whether the code of a
    trace's experiment has changed since, and `with_tries` is whether to read what readers tried.
    """
    loader = Loader(content.resolve())
    loader.read()
    topics = sorted(loader.topics(), key=lambda topic: (topic.file.order, topic.id))
    loader.refuse_doubles()
    references = loader.parts(claim.ReferenceFile, "references")
    shelf = Shelf(loader, is_stale, only, with_new)
    machines = shelf.machines(machine)
    at_hand = next(iter(machines.values()), None)
    reference = machines.get(shelf.reference_name or "", at_hand)
    on_pages = {}
    if reference:
        on_pages = standing([*machines.values()], reference)
        for kind in (kind for kind in kinds() if kind.traces):
            on_pages |= kind.take(kind.traces)(loader, reference.machine, is_stale)
    for kind in (kind for kind in kinds() if kind.references):
        references |= {cited.id: cited for cited in kind.take(kind.references)(on_pages)}
    parts = loader.parts_of_kinds(with_tries=with_tries)
    judged = claim_index(loader.of(claim.ClaimFile))
    if loader.errors or not (at_hand and reference):
        faults = (fault for document in loader.documents for fault in document.text_faults())
        raise errors.ContentErrors([*loader.errors, *faults])
    (home,), cited = loader.of(HomeFile), loader.of(claim.ReferenceFile)
    tries, unread = loader.tries() if with_tries else ((), ())
    return Book(
        root=loader.content.parent, home=home.model, topics=tuple(topics),
        misconceptions=loader.parts(claim.MisconceptionFile, "misconceptions"),
        given=dict(pair for file in cited for pair in file.model.given.items()),
        references=references, traces=on_pages,
        machine=at_hand.machine, reference=reference.machine, claim_index=judged, machines=machines,
        documents=tuple(loader.documents),
        tries=tries, unread=unread, parts=parts,
    )  # fmt: skip

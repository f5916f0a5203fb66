"""What pages are made from: everything that authors wrote and runs measured, frozen.

In: what `reading.py` has read of a content folder. Out: a `Book`, with its parts by their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from proofbook.generator.content.cases import ClaimIndex
from proofbook.generator.content.claim import Claim, Constant, Misconception, Reference
from proofbook.generator.content.documents import Document
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.exhibit import Figure
from proofbook.generator.content.handwritten import HandWritten
from proofbook.generator.content.lesson import LessonFile, Mode
from proofbook.generator.content.quiz import Item
from proofbook.generator.content.shelf import MachineFolder, TraceOnPage, standing
from proofbook.generator.content.topic import HomeFile, TopicFile
from proofbook.generator.content.words import Written
from proofbook.runners.core.trace.records import Machine, Run, Trace

PartT = TypeVar("PartT")
FileT = TypeVar("FileT", bound=Written)


@dataclass(frozen=True)
class Topic:
    """A folder of `content/topics/`."""

    id: str  # the folder's name, and the page's
    file: TopicFile
    lessons: dict[Mode, Document[LessonFile]]  # by mode, in the order in which modes are suggested
    items: dict[str, Item]  # the questions of quiz.yml and of any quiz-….yml, by id
    items_by_mode: dict[Mode, tuple[str, ...]]  # the ids that each mode asks, each once, in order

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """`Figure`s of all its lessons, by mode and id: `{"deep#ring": Figure}`."""
        return {
            f"{mode}#{figure.id}": figure
            for mode, lesson in self.lessons.items()
            for figure in lesson.model.figures
        }


@dataclass(frozen=True)
class Book:
    """Everything that pages are made from."""

    root: Path  # the folder that paths of listings start from: content's parent
    home: HomeFile
    topics: tuple[Topic, ...]
    machine: Machine  # the machine whose numbers the book shows
    reference: Machine  # the machine that stands in where that one has no trace
    documents: tuple[Document[Any], ...] = field(repr=False)  # every file, for places
    claim_index: ClaimIndex = field(default_factory=ClaimIndex, repr=False)
    misconceptions: dict[str, Misconception] = field(default_factory=dict)
    references: dict[str, Reference] = field(default_factory=dict)
    given: dict[str, Constant] = field(default_factory=dict)
    traces: dict[str, TraceOnPage] = field(default_factory=dict)  # by experiment, as shown here
    machines: dict[str, MachineFolder] = field(default_factory=dict)  # shown, reference, others
    tries: tuple[Trace, ...] = ()  # what readers ran themselves; only where they were asked for
    unread: tuple[ContentError, ...] = ()  # the files of these that cannot be read
    parts: dict[type, Any] = field(default_factory=dict)  # what kinds and companions read

    def part(self, of: type[PartT]) -> PartT:
        """What a kind or a companion has read, by its type; empty where it read nothing."""
        part: PartT = self.parts.get(of) or of()
        return part

    def file(self, of: type[FileT]) -> FileT | None:
        """The file of a model of which a book has one at most."""
        return self._by_model.get(of)

    @cached_property
    def _by_model(self) -> dict[type, Any]:
        return {type(document.model): document.model for document in self.documents}

    @property
    def claims(self) -> dict[str, Claim]:
        """The claims by id, one for each run that a claim is judged on."""
        return self.claim_index.claims

    @property
    def handwritten(self) -> list[Document[HandWritten]]:
        """The pages of content/pages."""
        return [document for document in self.documents if isinstance(document.model, HandWritten)]

    @cached_property
    def handwritten_by_name(self) -> dict[str, HandWritten]:
        """The pages of content/pages, each by its path there without `.md`."""
        files = ((page.source.file.partition("/pages/")[2], page) for page in self.handwritten)
        return {file.removesuffix(".md"): page.model for file, page in files}

    @cached_property
    def items(self) -> dict[str, Item]:
        """The questions of all topics by id, each as it is in its first case."""
        return {name: question for topic in self.topics for name, question in topic.items.items()}

    @cached_property
    def lessons(self) -> dict[str, tuple[Topic, Mode]]:
        """Every lesson as `topic/mode`."""
        modes = ((topic, mode) for topic in self.topics for mode in topic.lessons)
        return {f"{topic.id}/{mode}": (topic, mode) for topic, mode in modes}

    @cached_property
    def exhibited(self) -> dict[str, Figure]:
        """A lesson's `Figure` by the id of each item or case that shows it."""
        return {
            case.id: figure
            for topic in self.topics
            for question in topic.items.values()
            for case in (question, *question.others)
            if case.exhibit and (figure := topic.figures.get(case.exhibit.figure or ""))
        }

    def run(self, path: str) -> Run | None:
        """The run that `experiment.run` names, or None."""
        holder = self.holder(path)
        return holder.trace.runs.get(path.partition(".")[2]) if holder else None

    def holder(self, path: str) -> TraceOnPage | None:
        """The trace that holds the run `experiment.run`, if its experiment was measured."""
        experiment, _, name = path.partition(".")
        trace = self.traces.get(experiment)
        return trace.holder(name) if trace else None

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
        """A `Book` with the reference machine's traces; None if this shows these, or has none."""
        first = self.machines.get(self.reference.name)
        if self.is_reference or first is None:
            return None
        others = [folder for folder in self.machines.values() if folder is not first]
        traces = self.traces | standing([first, *others], first)
        return replace(self, traces=traces, machine=self.reference)

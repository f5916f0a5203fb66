"""A lab as its author writes it: task, laws that a solution obeys, hints; what is wrong in it.

Its programs lie beside it; the experiment `labs` runs them, and `benches/` holds what they are
called with.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from proofbook.generator.content import listed_code, words
from proofbook.generator.content.documents import Document
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.lesson import Order
from proofbook.generator.content.reading import Loader
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.values.evaluation import Evidence
from proofbook.runners.traces.differences import MisfitError, wrong_programs


class LabRequirement(words.Written):
    """A law, in the words of a reader who has to obey it."""

    says: words.Line
    """what has to hold."""
    formula: words.Line
    """the law; at this lab's sizes the runs give its value."""
    fails: words.Line
    """what it usually means where this fails first."""
    fails_in: dict[str, words.Line] = {}
    """the same where what differs has a name that begins so, such as `gradient`."""
    section: words.LessonSection
    """which explains why."""


class WrongProgram(words.Written):
    """A program of a lab that people write, and that has to fail."""

    mistake: str
    """the error of thought behind it, in a sentence."""
    fails: str
    """the requirement that fails first: `sends`, or by ranks, `peak on 2, sends on 4`."""
    ends: Literal["hung", "exception"] | None = None
    """how it ends where it has no result."""
    changes: str
    """lines of the solution behind a mark: `@` stays, `-` goes, and `+` comes in after them."""


class WrongFile(words.Written):
    """content/topics/<topic>/labs/<lab>/wrong.yml."""

    programs: Annotated[dict[words.Name, WrongProgram], Field(min_length=1)]
    """by name, in the order of the page."""


class LabFile(words.Written):
    """content/topics/<topic>/labs/<lab>/lab.yml."""

    order: Order
    """its place among all labs."""
    title: words.Line
    kind: Literal["write", "repair"] = "write"
    """a repair-lab begins with a program that fails as programs do in practice."""
    starter_fails: words.Name | None = None
    """of a repair-lab, the requirement that fails first."""
    task: words.Prose
    """at most 150 words."""
    figure: words.LessonFigure | None = None
    """that pictures it."""
    requirements: Annotated[dict[words.Name, LabRequirement], Field(min_length=1)]
    """those of its bench, in their order."""
    hints: Annotated[list[words.Prose], Field(min_length=1)]


@dataclass(frozen=True)
class Labs:
    """Those of each topic, by name, in their order."""

    by_topic: dict[str, dict[str, Document[LabFile]]] = field(default_factory=dict)

    def of(self, topic: str) -> dict[str, Document[LabFile]]:
        """Those of a topic, by name."""
        return self.by_topic.get(topic, {})


def labs(loader: Loader, _: bool) -> Labs:
    """Those that were read."""
    by_topic: dict[str, dict[str, Document[LabFile]]] = {}
    for lab in sorted(loader.of(LabFile), key=lambda lab: lab.model.order):
        folder = Path(lab.source.file).parent
        by_topic.setdefault(folder.parent.parent.name, {})[folder.name] = lab
    return Labs(by_topic)


def mistakes(evidence: Evidence, document: Document[LabFile]) -> Iterator[Mistake]:
    """Quantities in comments of a lab's programs."""
    root = evidence.book.root
    for program in sorted((root / document.source.file).parent.glob("*.py")):
        path = program.relative_to(root).as_posix()
        if problem := listed_code.why_stated(root, path, None):
            yield ("title",), problem


def wrong_mistakes(evidence: Evidence, document: Document[WrongFile]) -> Iterator[ContentError]:
    """Programs of a lab whose changes do not fit the solution, or make no Python of it."""
    for program in wrong_programs(evidence.book.root / document.source.file):
        try:
            ast.parse(program.assembled())
        except MisfitError as error:
            line, message = error.line, str(error)
        except SyntaxError as error:
            code = (error.text or "").strip()
            line, message = 0, f"with these changes it is no Python: {error.msg}: {code!r}"
        else:
            continue
        first, column = program.place
        yield ContentError(document.source.file, first + line, column, message)

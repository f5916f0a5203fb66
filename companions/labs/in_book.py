"""The labs of a book, and what is wrong in their files.

In: `lab.yml` and `wrong.yml` of `content/topics/*/labs/*/`. Out: `Labs`.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from proofbook.companions.labs.words import LabFile, WrongFile
from proofbook.generator.content import listed_code
from proofbook.generator.content.documents import Document
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.reading import Loader
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.values.evaluation import Evidence
from proofbook.runners.traces.differences import MisfitError, wrong_programs


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

"""What every lesson has, and what its sections have, as an author writes them.

The model of each mode is that of its file (`reading.file_models`), which a kind declares.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Literal, get_args

from pydantic import Field

from proofbook.generator.content import words
from proofbook.generator.content.exhibit import ExplainedProgram, Figure
from proofbook.generator.content.quiz import ValueTable


class LessonFile(words.Written):
    """content/topics/<topic>/<mode>.yml."""

    title: words.Line
    introduction: words.Prose
    figures: list[Figure] = []

    def asked(self, named: Iterable[str], known: Collection[str]) -> Iterator[str]:
        """The questions that it asks: those that it names, of all that there are."""
        yield from (name for name in named if name in known)


class Backed(words.Written):
    """A text with what backs it."""

    text: words.Prose
    figure: words.FigureId | None = None
    claims: list[words.ClaimId] = []
    sources: list[words.SourceId] = []


class LessonTable(ValueTable):
    """A table of values in a lesson."""

    first_column: words.Line | None = None
    """what the titles of its rows are."""
    afterword: words.Prose | None = None


class Section(Backed):
    """A titled stretch of prose with what backs it; `commit` asks before it tells."""

    title: words.Line
    opening: words.Line | None = None
    """before the question, what the section is about."""
    commit: words.ItemId | None = None
    table: LessonTable | None = None
    """values, after the text and the figure."""
    program: ExplainedProgram | None = None
    """after the text, a mechanism in full, with its output beside it."""


class CostRow(words.Written):
    """A law beside what its run measured; run, prediction and measurement follow from the law."""

    what: words.Line
    """what costs so much."""
    law: words.ClaimId
    """the claim's id, `mg-large-peak@large_batch.split_four`."""


# In the order in which they are suggested.
Mode = Literal[
    "learn", "trace", "experiment", "cost", "worked", "try", "why", "deep", "challenge", "recall"
]
MODES: tuple[Mode, ...] = get_args(Mode)
CHAINED: tuple[Mode, ...] = ("deep",)  # several pages each
Order = Annotated[int, Field(ge=0, le=999)]

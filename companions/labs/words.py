"""A lab as its author writes it: the task, the laws that a solution obeys, and hints.

Its programs lie beside it; the experiment `labs` runs them, and `benches/` holds what they are
called with.
"""

from typing import Annotated, Literal

from pydantic import Field

from proofbook.generator.content.lesson import Order
from proofbook.generator.content.words import (
    LessonFigure,
    LessonSection,
    Line,
    Name,
    Prose,
    Written,
)


class LabRequirement(Written):
    """A law, in the words of a reader who has to obey it."""

    says: Line
    """what has to hold."""
    formula: Line
    """the law; at this lab's sizes the runs give its value."""
    fails: Line
    """what it usually means where this fails first."""
    fails_in: dict[str, Line] = {}
    """the same where what differs has a name that begins so, such as `gradient`."""
    section: LessonSection
    """which explains why."""


class WrongProgram(Written):
    """A program of a lab that people write, and that has to fail."""

    mistake: str
    """the error of thought behind it, in a sentence."""
    fails: str
    """the requirement that fails first: `sends`, or by ranks, `peak on 2, sends on 4`."""
    ends: Literal["hung", "exception"] | None = None
    """how it ends where it has no result."""
    changes: str
    """lines of the solution behind a mark: `@` stays, `-` goes, and `+` comes in after them."""


class WrongFile(Written):
    """content/topics/<topic>/labs/<lab>/wrong.yml."""

    programs: Annotated[dict[Name, WrongProgram], Field(min_length=1)]
    """by name, in the order of the page."""


class LabList(Written):
    """A fence `labs` of a page by hand: all labs of a kind, topic by topic."""

    kind: Literal["write", "repair"]
    """whether a program is written or repaired in them."""


class LabFile(Written):
    """content/topics/<topic>/labs/<lab>/lab.yml."""

    order: Order
    """its place among all labs."""
    title: Line
    kind: Literal["write", "repair"] = "write"
    """a repair-lab begins with a program that fails as programs do in practice."""
    starter_fails: Name | None = None
    """of a repair-lab, the requirement that fails first."""
    task: Prose
    """at most 150 words."""
    figure: LessonFigure | None = None
    """that pictures it."""
    requirements: Annotated[dict[Name, LabRequirement], Field(min_length=1)]
    """those of its bench, in their order."""
    hints: Annotated[list[Prose], Field(min_length=1)]

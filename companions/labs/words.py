"""A lab as its author writes it: the task, the laws that a solution obeys, and hints.

Its programs lie beside it; the experiment `labs` runs them, and `benches/` holds what they are
called with.
"""

from typing import Annotated, Literal

from pydantic import Field

from proofbook.generator.content import words
from proofbook.generator.content.lesson import Order


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

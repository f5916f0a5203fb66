"""A titled stretch of prose: what several modes are made of."""

from __future__ import annotations

from collections.abc import Iterable

from generator.content.exhibit import ExplainedProgram
from generator.content.words import ClaimId, Id, Line, Naming, Prose


class Section(Naming):
    """A titled stretch of prose with what backs it; `commit` asks before it tells.

    `opening` stands before the question, and says what the section is about. A `program` follows
    the text: a mechanism in full, with its output beside it.
    """

    title: Line
    opening: Line | None = None
    commit: Id | None = None
    text: Prose
    figure: Id | None = None
    program: ExplainedProgram | None = None
    claims: list[ClaimId] = []
    sources: list[Id] = []


class WaitingSection(Section):
    """A section that may answer the page's first question, and then waits for that answer."""

    waits: bool = False


def refuse_waiting_for_nothing(commit: str | None, waiting: Iterable[object]) -> None:
    """Refuse parts of a page that wait for the answer to its first question where it asks none.

    Raises:
        ValueError: something waits, and no question is asked.
    """
    if commit is None and any(waiting):
        raise ValueError("waits: needs commit:, the question whose answer it waits for")

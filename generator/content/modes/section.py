"""A titled stretch of prose: what several modes are made of."""

from __future__ import annotations

from generator.content.exhibit import ExplainedProgram
from generator.content.words import ClaimId, Id, Line, Naming, Prose


class Section(Naming):
    """A titled stretch of prose with what backs it; `commit` asks before it tells.

    A `program` follows the text: a mechanism in full, with its output beside it.
    """

    title: Line
    commit: Id | None = None
    text: Prose
    figure: Id | None = None
    program: ExplainedProgram | None = None
    claims: list[ClaimId] = []
    sources: list[Id] = []


class WaitingSection(Section):
    """A section that may answer the page's first question, and then waits for that answer."""

    waits: bool = False

"""A titled stretch of prose: what several modes are made of."""

from __future__ import annotations

from generator.content.words import ClaimId, Id, Line, Naming, Prose


class Section(Naming):
    """A titled stretch of prose with what backs it; `commit` asks before it tells."""

    title: Line
    commit: Id | None = None
    text: Prose
    figure: Id | None = None
    claims: list[ClaimId] = []
    sources: list[Id] = []

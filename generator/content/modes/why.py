"""Why: what a method is for, what came before, when not to use it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import Figure
from generator.content.modes.section import Section
from generator.content.words import ClaimId, Id, Line, Naming, Prose, RunPath, Written


class Decision(Written):
    """One row of a decision table: a situation, what to use, and the run that shows it."""

    situation: Line
    use: Line
    because: Line
    run: RunPath
    claim: ClaimId | None = None


class WhyFile(Naming):
    """content/topics/<topic>/why.yml: what it is for, what came before, when not to use it."""

    title: Line
    introduction: Prose
    purpose: Section
    before: Annotated[list[Section], Field(min_length=1)]  # what came before, and what it lacked
    decisions_say: Prose
    decisions: Annotated[list[Decision], Field(min_length=4)]
    when_not: Annotated[list[Section], Field(min_length=1)]
    checks: list[Id] = []
    takeaway: Prose
    figures: list[Figure] = []

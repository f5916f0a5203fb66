"""Worked example: one case from the question to the decision, each number beside its formula."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import Figure
from generator.content.quiz import Table
from generator.content.words import ClaimId, Id, Line, Naming, Prose


class WorkedStep(Naming):
    """One step of the example; `commit` asks before it tells.

    Attributes:
        first_column: what the titles of the table's rows are.
        table: values, after the text and the figure.
        afterword: what to see in the table.
    """

    title: Line
    commit: Id | None = None
    text: Prose
    figure: Id | None = None
    first_column: Line | None = None
    table: Table | None = None
    afterword: Prose | None = None
    claims: list[ClaimId] = []
    sources: list[Id] = []


class WorkedFile(Naming):
    """content/topics/<topic>/worked.yml: one case, term by term."""

    title: Line
    introduction: Prose
    steps: Annotated[list[WorkedStep], Field(min_length=2)]
    checks: list[Id] = []
    takeaway: Prose
    figures: list[Figure] = []

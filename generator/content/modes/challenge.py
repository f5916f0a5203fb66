"""Challenge: problems to solve against something real."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import Figure
from generator.content.words import Id, Line, Naming, Prose, RunPath


class Problem(Naming):
    """A problem to solve against something real; `worked` comes after two attempts."""

    title: Line
    situation: Prose
    output: RunPath | None = None  # what this run printed
    figure: Id | None = None
    item: Id
    worked: Prose


class ChallengeFile(Naming):
    """content/topics/<topic>/challenge.yml."""

    title: Line
    introduction: Prose
    problems: Annotated[list[Problem], Field(min_length=6)]
    afterword: Prose
    figures: list[Figure] = []

"""Learn: five minutes that pay off before any framework."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import CodeNote, Figure, Listing
from generator.content.modes.section import Section
from generator.content.words import Id, Line, Naming, Prose


class LearnFile(Naming):
    """content/topics/<topic>/learn.yml: five minutes that pay off before any framework."""

    title: Line
    introduction: Prose
    guess: Id  # commit first
    seen: Section  # then see what runs showed
    idea: Prose
    figure: Id
    program: Listing  # the smallest real program, and what it printed
    walkthrough: Annotated[list[CodeNote], Field(min_length=2)]
    output_says: Prose
    checks: Annotated[list[Id], Field(min_length=3, max_length=3)]
    takeaway: Prose
    figures: list[Figure] = []

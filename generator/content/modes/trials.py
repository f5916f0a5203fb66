"""Try: commit to a number, see what was measured, then measure it yourself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import Figure
from generator.content.words import Expression, Id, Line, Name, Naming, Prose, RunPath, Written


class Suggestion(Written):
    """A setting to change with `python -m runners try`, and what to look at then."""

    set: Annotated[dict[Name, int | float | str], Field(min_length=1, max_length=2)]
    look: Line


class Trial(Naming):
    """Commit to a number, see what was measured and why, then measure it yourself."""

    title: Line
    situation: Prose
    item: Id  # of kind predict or number
    why: Prose
    run: RunPath  # what `python -m runners try` runs; its real output is shown
    value: Expression  # what a reader's own run of it shows beside the book's; starts with the run
    measures: Line | None = None  # what `value` is, where the output does not print it
    suggestions: Annotated[list[Suggestion], Field(min_length=1)]


class TryFile(Naming):
    """content/topics/<topic>/try.yml."""

    title: Line
    introduction: Prose
    trials: Annotated[list[Trial], Field(min_length=3)]
    afterword: Prose
    figures: list[Figure] = []

"""Experiment: a problem, the runs that fail, and the run that solves it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import ExplainedProgram, Figure, Listing
from generator.content.modes.section import Section
from generator.content.words import ClaimId, Expression, Id, Line, Naming, Prose, RunPath, Written


class BeforeAfter(Written):
    """One row of a before-and-after table."""

    what: Line
    before: Expression
    after: Expression


class Compared(Written):
    """What was before the fix, and what is after it."""

    before: Line
    after: Line
    rows: Annotated[list[BeforeAfter], Field(min_length=1)]
    afterword: Prose


class Bonus(Written):
    """A further task, with its hint and what a run showed."""

    task: Prose
    hint: Prose
    answer: Prose
    listing: ExplainedProgram | Listing | None = None


class ExperimentFile(Naming):
    """content/topics/<topic>/experiment.yml."""

    title: Line
    introduction: Prose
    commit: Id
    asks_after_refuted: bool = False  # where the question tells what `refuted` shows
    problem: Prose
    current_metrics: list[RunPath] = []  # the failing runs, shown as a table
    issue: Prose | None = None
    task: Prose
    constraints: list[Line] = []
    refuted: Section | None = None  # the task as set, and the run that refutes it
    restated: Section | None = None
    hints: list[Prose] = []
    solution: ExplainedProgram | Listing  # explained where it is a program of its own
    what_changed: list[Line] = []
    compared: Compared | None = None
    good_for: Section | None = None  # what the fix is good for, and what not
    surprises: list[Line] = []
    more: list[Section] = []  # what the runs show beyond the task
    bonus: Bonus | None = None
    claims: list[ClaimId] = []
    figures: list[Figure] = []

"""What a lesson or an item shows from runs, as an author names it: figures and listings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from generator.content.words import ClaimId, Id, Line, PerRun, Prose, RunPath, Written


class GrowthSeries(Written):
    """The runs of one line of a growth chart."""

    label: Line
    runs: Annotated[list[RunPath], Field(min_length=2)]


class Growth(Written):
    """How a measured number grows over runs, beside what a formula says.

    `x`, `measured` and `predicted` are expressions in which `run` stands for each run in turn, as
    in `run.settings.batch_size` or `run.ranks[0].memory.peak_bytes`. Instead of the latter two,
    `law` names a claim over `run`, whose rule gives both: `large-batch-peak@growth.batch_2000`.
    """

    x: PerRun
    law: ClaimId | None = None
    measured: PerRun | None = None
    predicted: PerRun | None = None
    x_label: Line
    y_label: Line
    series: Annotated[list[GrowthSeries], Field(min_length=1, max_length=5)]
    logarithmic: bool = False

    @model_validator(mode="after")
    def _by_law_or_alone(self) -> Self:
        if (self.law is None) == (self.measured is None) or (self.law and self.predicted):
            raise ValueError("give law, or else measured, and predicted where there is a formula")
        return self


class Figure(Written):
    """A chart or diagram drawn from runs.

    memory_bars: peak of every rank of `runs` against the budget of `budgeted` (same order).
    epochs: loss, accuracy and validation of `runs` (one or several lines).
    timeline: who did what in the representative step of `runs[0]`.
    placement: which rank holds which layer of each of `runs`.
    step_times: step time of `runs` as median and quartiles.
    mental_model, under_the_hood: the two diagrams of a Deep page, drawn from `runs`.
    growth: what `growth` describes; its runs stand there.
    """

    id: Id
    kind: Literal[
        "memory_bars", "epochs", "timeline", "placement", "step_times",
        "mental_model", "under_the_hood", "growth",
    ]  # fmt: skip
    title: Line
    caption: Line
    runs: list[RunPath] = []
    budgeted: list[RunPath] = []
    growth: Growth | None = None

    @model_validator(mode="after")
    def _drawn_from_something(self) -> Self:
        if (self.kind == "growth") != (self.growth is not None):
            raise ValueError("growth: describes a figure of kind growth, and only that")
        if self.growth is None and not self.runs:
            raise ValueError("a figure is drawn from runs; name at least one under runs:")
        return self


class Listing(Written):
    """Code shown from a file that a run executes, never typed into a lesson."""

    path: str  # from the project's root
    object: str | None = None  # a function or class of it; null: the whole file
    run: RunPath | None = None  # the run that executed it; its printed output is shown
    title: Line


class CodeNote(Written):
    """A line of a listing, written as it stands there without its indent, and what it does."""

    code: str
    says: Line


class ExplainedProgram(Listing):
    """A program that a run executed: its code, what its parts do, and what it printed."""

    run: RunPath
    walkthrough: Annotated[list[CodeNote], Field(min_length=2)]
    output_says: Prose

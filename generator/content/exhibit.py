"""What a lesson or an item shows from runs, as an author names it: figures and listings."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from proofbook.generator.content.words import (
    Expression,
    Id,
    LessonFigure,
    Line,
    PerRun,
    Prose,
    RunPath,
    Written,
)
from proofbook.generator.content.yaml_source import Path


class TableRow(Written):
    """A row of a table of values."""

    title: Line
    cells: Annotated[list[Expression], Field(min_length=1)]


class ValueTable(Written):
    """A table of values, whole."""

    columns: Annotated[list[Line], Field(min_length=1)]
    rows: Annotated[list[TableRow], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_full(self) -> Self:
        if any(len(row.cells) != len(self.columns) for row in self.rows):
            raise ValueError("each row needs as many cells as there are columns")
        return self


class GrowthSeries(Written):
    """The runs of one line of a growth chart, and a formula of their own, or points instead."""

    ONE_OF = (("runs", "points"),)
    label: Line
    runs: Annotated[list[RunPath], Field(min_length=2)] = []
    points: Annotated[
        list[Annotated[list[Expression], Field(min_length=2, max_length=2)]], Field(min_length=2)
    ] = []
    """x and y of each, from what is cited or recorded."""
    predicted: PerRun | None = None
    ends: Line | None = None
    """why it ends before the others do, in a sentence of the caption."""


class GrowthChart(Written):
    """How a measured number grows over runs, beside what a formula says."""

    x: PerRun | None = None
    measured: PerRun | None = None
    """both of each run, where a series has runs."""
    predicted: PerRun | None = None
    x_label: Line
    y_label: Line
    series: Annotated[list[GrowthSeries], Field(min_length=1, max_length=5)]
    logarithmic: bool = False

    @model_validator(mode="after")
    def _runs_are_measured(self) -> Self:
        if any(series.runs for series in self.series) and not (self.x and self.measured):
            raise ValueError("give x: and measured:, which each run has")
        return self


class BarChart(ValueTable):
    """A bar for each row, of its cells one after another, all in one unit.

    Rows whose titles begin alike up to a colon stand together.
    """

    mark: TableRow | None = None
    """a line across all bars, at the value of its only cell."""


class PlayControl(Written):
    """One choice that readers make in a figure."""

    label: Line
    reads: PerRun | None = None
    """an expression over `run`; runs with the same value share an option. Without it, the words of
    a run decide, by its path, where no setting tells the runs apart."""
    words: dict[str, Line] = {}
    """what its values, or its runs, are called, where they need it."""


class PlayFact(Written):
    """A column of a figure's table: a value of each run, with its source."""

    label: Line
    value: PerRun


class CellRow(Written):
    """A row of a play of `cells`: what each rank has, as the program of the run reported it."""

    label: Line | None = None
    """none for another line of what is above."""
    fact: str
    """the name in the program's `report` of a number or a word, or of a list of them."""
    told: Line | None = None
    """what the ranks do. A row without it shows together with the next one."""
    from_all: bool = False
    """each rank received it from all ranks, which had the row above."""
    colours: str | None = None
    """the name of a list in the `report`: what each number is for, `0` or `1`, as its colour."""
    keeps_colours: bool = False
    """a number has the colour that it has above, a new one that of the number at its place."""


class MeshAxis(Written):
    """An axis of a mesh: how many ranks divide something along it, and what each passes."""

    name: Line
    size: int | PerRun
    passes: PerRun | None = None
    """an expression over `run`: the bytes that a rank passes along it."""
    term: PlayFact | None = None
    """what a formula has for it, as `L S / B`."""
    is_chain: bool = False
    """each rank passes to the next and back, as stages of a pipeline, and not around a ring."""


class Mesh(Written):
    """The ranks of a run as an array, and the nodes that they are on."""

    title: Line | None = None
    node: int | PerRun
    """how many ranks a node has; ranks are numbered node by node."""
    is_tree: bool = False
    """the ranks of an axis are the first ones of its groups along the later axes."""
    axes: Annotated[list[MeshAxis], Field(min_length=1, max_length=5)]
    """in the order of the mesh: ranks are numbered along the last one first."""
    exchanged: str | None = None
    """the strategy of runs in which the last two axes have changed places."""


class NumberRow(Written):
    """A number line: the numbers of a format, and the one that a rank has at each moment."""

    label: Line
    numbers: str
    """the name in the program's `report` of a list, what the line has."""
    held: str
    """of a list with as many as there are moments."""
    rank: int = 0


class NumberLines(Written):
    """Number lines one below another, played over the numbers that are wanted."""

    wanted: str
    """the name in the `report` of a list: one number for each moment."""
    moment: Line
    """what a moment is called, such as `Update`."""
    rows: Annotated[list[NumberRow], Field(min_length=1, max_length=6)]


View = Literal[
    "memory",
    "sent",
    "loss",
    "schedule",
    "chunks",
    "overlap",
    "arrivals",
    "turns",
    "units",
    "block",
    "cells",
    "mesh",
    "scores",
    "line",
]


class Play(Written):
    """What readers change in a figure of kind `play`, and what each state shows of its runs."""

    task: Line | None = None
    controls: list[PlayControl] = []
    """what readers choose; a state of the figure is one option of each."""
    beside: PlayControl | None = None
    """names the runs of a state, which are drawn beside each other."""
    shows: Annotated[list[View], Field(min_length=1)]
    """`memory`, peak of each rank by class of tensors, under a budget that readers move; `sent`,
    what a rank sends in a step, over a ring; `loss` of each step. These are played, by a rule from
    the settings of a run: `schedule` of a pipeline; `overlap`, a step of DDP over a link; `units`,
    a step of FSDP under its curve of memory; `chunks`, a ring all-reduce; `block` of a transformer
    under tensor parallelism; `arrivals`, products over tokens that ranks gather or pass around a
    ring; `turns`, microbatches of an expert layer on a rank and its link. Also played, `cells` has
    a row for each entry of `cells:`; `scores`, a causal attention whose tokens ranks divide;
    `line`, number lines of formats. Not
    played: `mesh`, the groups of each axis of `meshes:`."""
    cells: list[CellRow] = []
    meshes: list[Mesh] = []
    """arrays of the same ranks, drawn one below another."""
    line: NumberLines | None = None
    facts: Annotated[list[PlayFact], Field(min_length=1, max_length=6)]
    budget: Expression | None = None
    """an expression: where the movable line over `memory` starts."""

    @property
    def named_controls(self) -> dict[Path, PlayControl]:
        """The controls, and what names runs beside each other, by their paths in a figure."""
        controls: dict[Path, PlayControl]
        controls = {("play", "controls", n): control for n, control in enumerate(self.controls)}
        return controls | ({("play", "beside"): self.beside} if self.beside else {})

    @model_validator(mode="after")
    def _views_have_their_keys(self) -> Self:
        if (self.budget is not None) != ("memory" in self.shows):
            raise ValueError("give both or neither: shows: [memory] and budget:")
        if bool(self.task) != (bool(self.controls) or self.shows != ["mesh"]):
            raise ValueError("give task: where readers choose or play, and only there")
        for view, key in {"cells": "cells", "mesh": "meshes", "line": "line"}.items():
            if bool(getattr(self, key)) != (view in self.shows):
                raise ValueError(f"give both or neither: shows: [{view}] and {key}:")
        return self


class Figure(Written):
    """A chart or diagram drawn from runs."""

    ONE_OF = (("runs", "growth", "bars"),)
    id: Id
    kind: Literal["epochs", "placement", "growth", "bars", "play"]
    """`epochs`, loss, accuracy and validation; `placement`, which layers each rank holds, and what
    travels between them in a step; `growth`, `bars` or `play`, as these keys describe it."""
    title: Line
    caption: Line
    runs: list[RunPath] = []
    """those that are drawn; `growth` and `bars` name their own."""
    growth: GrowthChart | None = None
    bars: BarChart | None = None
    play: Play | None = None

    @model_validator(mode="after")
    def _drawn_from_something(self) -> Self:
        for kind in ("play", "growth", "bars"):
            if (self.kind == kind) != (getattr(self, kind) is not None):
                raise ValueError(f"{kind}: describes a figure of kind {kind}, and only that")
        return self


class Listing(Written):
    """Code shown from a file that a run executes, never typed into a lesson."""

    path: str
    """of the file, from the project's root."""
    object: str | None = None
    """a function or class of it; without, the whole file."""
    run: RunPath | None = None
    """the run that executed it; its printed output is shown."""
    title: Line


class CodeNote(Written):
    """A line of a listing, without its indent, and what it does."""

    code: str
    says: Line


class Executed(Listing):
    """Code that a run executed."""

    run: RunPath
    """the run that executed it; its printed output is shown."""


class ExplainedProgram(Executed):
    """A program that a run executed: its code, what its parts do, and what it printed."""

    walkthrough: Annotated[list[CodeNote], Field(min_length=2)]
    reports_from: str | None = None
    """the line, without its indent, from which on it only checks and prints; pages fold that."""
    output_says: Prose


class Exhibit(Written):
    """What a question shows below its stem, from runs, and what opens nothing: one of these."""

    ONE_OF = (("figure", "program", "log"),)
    figure: LessonFigure | None = None
    """a figure of a lesson of the topic, as `deep#ring`, which its page need not show. Its first
    state is drawn, without controls, numbers and caption, which may tell the answer."""
    program: Listing | None = None
    """code that a run executed; with `run:` also what it printed."""
    log: RunPath | None = None
    """the run whose printed output is shown."""

"""The lessons as an author writes them: one model a mode, each rendered by its own template."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from generator.words import Expression, Id, Line, Prose, RunPath, Written

Level = Literal["Foundation", "Intermediate", "Advanced", "Expert"]


class Figure(Written):
    """A chart or diagram drawn from runs.

    memory_bars: peak of every rank of `runs` against the budget of `budgeted` (same order).
    epochs: loss, accuracy and validation of `runs` (one or several lines).
    timeline: who did what in the representative step of `runs[0]`.
    placement: which rank holds which layer of each of `runs`.
    step_times: step time of `runs` as median and quartiles.
    mental_model, under_the_hood: the two diagrams of a Deep page, drawn from `runs`.
    """

    id: Id
    kind: Literal[
        "memory_bars", "epochs", "timeline", "placement", "step_times",
        "mental_model", "under_the_hood",
    ]  # fmt: skip
    title: Line
    caption: Line
    runs: Annotated[list[RunPath], Field(min_length=1)]
    budgeted: list[RunPath] = []


class Listing(Written):
    """Code shown from a file that a run executes, never typed into a lesson."""

    path: str  # from the project's root
    object: str | None = None  # a function or class of it; null: the whole file
    run: RunPath | None = None  # the run that executed it; its printed output is shown
    title: Line


class TopicFile(Written):
    """content/topics/<topic>/topic.yml."""

    title: Line
    summary: Prose
    order: int
    modes: dict[Literal["deep", "trace", "experiment"], Line]  # mode → the page's own question


class Section(Written):
    """A titled stretch of prose with what backs it."""

    title: Line
    text: Prose
    figure: Id | None = None
    claims: list[Id] = []
    sources: list[Id] = []


class BuildStep(Written):
    """One step of a build-up."""

    level: Level
    title: Line
    commit: Id | None = None  # an item of quiz.yml: "before reading on, commit to your answer"
    concept: Prose
    explanation: Prose
    result: Prose
    insight: Prose
    figure: Id | None = None
    claims: list[Id] = []
    sources: list[Id] = []


class Myth(Written):
    """Commit, then belief, what a run showed, the mechanism, why it matters."""

    question: Id  # an item of quiz.yml with two options, yes and no
    belief: Line
    showed: Prose
    mechanism: Prose
    why_it_matters: Prose
    claims: list[Id] = []
    sources: list[Id] = []


class Pitfall(Written):
    """A mistake and its mend, both executed."""

    title: Line
    wrong: Listing
    wrong_says: Prose
    right: Listing
    right_says: Prose
    root_cause: Prose


class Connection(Written):
    """Another field that the idea connects to."""

    title: Line
    text: Prose


class Overview(Written):
    what: Prose
    why_it_matters: Prose
    where_it_fits: Prose
    before: list[Line]
    after: list[Line]


class MentalModel(Written):
    core_idea: Prose
    analogy: Prose
    figure: Id


class UnderTheHood(Written):
    text: Prose
    figure: Id
    sources: list[Id] = []
    claims: list[Id] = []


class DeepFile(Written):
    """content/topics/<topic>/deep.yml."""

    title: Line
    introduction: Prose
    overview: Overview
    mental_model: MentalModel
    build_up: Annotated[list[BuildStep], Field(min_length=3)]
    under_the_hood: UnderTheHood
    why_designed_this_way: Section
    myths: Annotated[list[Myth], Field(min_length=1)]
    expert_zone: list[Section]
    when_not_to_use: Section
    production_patterns: list[Section]
    connections: list[Connection]
    pitfalls: list[Pitfall]
    takeaways: list[Line]
    figures: list[Figure] = []


class FlowStage(Written):
    """One row of a data-flow table; shapes, operation and values come from the trace's stage."""

    stage: str
    title: Line
    note: Line


class DataFlow(Written):
    run: RunPath
    introduction: Prose
    stages: Annotated[list[FlowStage], Field(min_length=1)]


class Training(Written):
    """Training epoch by epoch; observations are computed by detectors, never written."""

    run: RunPath
    introduction: Prose
    figure: Id
    afterword: Prose | None = None


class PredictionRow(Written):
    step: str
    title: Line
    note: Line


class Prediction(Written):
    run: RunPath
    introduction: Prose
    steps: Annotated[list[PredictionRow], Field(min_length=1)]


class TraceFile(Written):
    """content/topics/<topic>/trace.yml."""

    title: Line
    introduction: Prose
    commit: Id | None = None
    data_flow: DataFlow
    training: Training
    prediction: Prediction
    more: list[Section] = []  # sections with their own evidence: equality, drift, speed …
    quiz: Annotated[list[Id], Field(min_length=4)]
    key_insight: Prose
    claims: list[Id] = []  # the verdict table at the end
    figures: list[Figure] = []


class BeforeAfter(Written):
    """One row of a before-and-after table."""

    what: Line
    before: Expression
    after: Expression


class Compared(Written):
    before: Line
    after: Line
    rows: Annotated[list[BeforeAfter], Field(min_length=1)]
    afterword: Prose


class Bonus(Written):
    task: Prose
    hint: Prose
    answer: Prose
    listing: Listing | None = None


class ExperimentFile(Written):
    """content/topics/<topic>/experiment.yml."""

    title: Line
    introduction: Prose
    commit: Id
    problem: Prose
    current_metrics: list[RunPath]  # the failing runs, shown as a table
    issue: Prose
    task: Prose
    constraints: list[Line]
    refuted: Section  # the task as set, and the run that refutes it
    restated: Section
    hints: Annotated[list[Prose], Field(min_length=1)]
    solution: Listing
    what_changed: list[Line]
    compared: Compared
    good_for: Section  # what the refuted cure is really good for
    surprises: list[Line] = []
    more: list[Section] = []  # what the runs show beyond the task
    bonus: Bonus
    claims: list[Id] = []
    figures: list[Figure] = []


class HomeFile(Written):
    """content/home.yml."""

    title: Line
    promise: Prose
    figure: Figure
    how: Prose


LessonFile = DeepFile | TraceFile | ExperimentFile
MODES: dict[str, type[DeepFile | TraceFile | ExperimentFile]] = {
    "deep": DeepFile,
    "trace": TraceFile,
    "experiment": ExperimentFile,
}
__all__ = ["MODES", "DeepFile", "ExperimentFile", "Figure", "HomeFile", "LessonFile", "Listing",
           "TopicFile", "TraceFile"]  # fmt: skip

"""The lessons as an author writes them: one model a mode, each rendered by its own template."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from generator.claim import Tolerance
from generator.exhibit import Figure, Listing
from generator.words import Expression, Formula, Id, Line, Name, Prose, RunPath, Written

Mode = Literal["learn", "why", "deep", "trace", "try", "challenge", "experiment", "recall", "cost"]
Level = Literal["Foundation", "Intermediate", "Advanced", "Expert"]


class TopicFile(Written):
    """content/topics/<topic>/topic.yml."""

    title: Line
    summary: Prose
    order: int
    modes: dict[Mode, Line]  # mode → the page's own question


class Section(Written):
    """A titled stretch of prose with what backs it; `commit` asks before it tells."""

    title: Line
    commit: Id | None = None
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
    """What the subject is, why it matters, what stands before and after it."""

    what: Prose
    why_it_matters: Prose
    where_it_fits: Prose
    before: list[Line]
    after: list[Line]


class MentalModel(Written):
    """The one picture to keep."""

    core_idea: Prose
    analogy: Prose
    figure: Id


class UnderTheHood(Written):
    """What happens inside one step."""

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
    """The way of the rows, stage by stage, as a run recorded it."""

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
    """One step of a real batch, by the name that the run gave it."""

    step: str
    title: Line
    note: Line


class Prediction(Written):
    """One real batch through the model."""

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
    timeline: Section | None = None  # the ranks of one metered step, side by side
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
    """What was before, and what is after the cure."""

    before: Line
    after: Line
    rows: Annotated[list[BeforeAfter], Field(min_length=1)]
    afterword: Prose


class Bonus(Written):
    """A further task, with its hint and what a run showed."""

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
    refuted: Section | None = None  # the task as set, and the run that refutes it
    restated: Section | None = None
    hints: Annotated[list[Prose], Field(min_length=1)]
    solution: Listing
    what_changed: list[Line]
    compared: Compared
    good_for: Section | None = None  # what the cure is good for, and what not
    surprises: list[Line] = []
    more: list[Section] = []  # what the runs show beyond the task
    bonus: Bonus
    claims: list[Id] = []
    figures: list[Figure] = []


class CodeNote(Written):
    """A line of a listing, written as it stands there without its indent, and what it does."""

    code: str
    says: Line


class LearnFile(Written):
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


class Decision(Written):
    """One row of a decision table: a situation, what to use, and the run that shows it."""

    situation: Line
    use: Line
    because: Line
    run: RunPath
    claim: Id | None = None


class WhyFile(Written):
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


class Suggestion(Written):
    """A setting to change with `python -m runners try`, and what to look at then."""

    set: Annotated[dict[Name, int | float | str], Field(min_length=1, max_length=2)]
    look: Line


class Trial(Written):
    """Commit to a number, see what was measured and why, then measure it yourself."""

    title: Line
    situation: Prose
    item: Id  # of kind predict or number
    why: Prose
    run: RunPath  # what `python -m runners try` runs; its real output is shown
    value: Expression  # what a reader's own run of it shows beside the book's; starts with the run
    suggestions: Annotated[list[Suggestion], Field(min_length=1)]


class TryFile(Written):
    """content/topics/<topic>/try.yml."""

    title: Line
    introduction: Prose
    trials: Annotated[list[Trial], Field(min_length=3)]
    afterword: Prose
    figures: list[Figure] = []


class Problem(Written):
    """A problem to solve against something real; `worked` comes after two attempts."""

    title: Line
    situation: Prose
    output: RunPath | None = None  # what this run printed
    figure: Id | None = None
    item: Id
    worked: Prose


class ChallengeFile(Written):
    """content/topics/<topic>/challenge.yml."""

    title: Line
    introduction: Prose
    problems: Annotated[list[Problem], Field(min_length=6)]
    afterword: Prose
    figures: list[Figure] = []


class RecallFile(Written):
    """content/topics/<topic>/recall.yml: the topic's items again, each when it is due."""

    title: Line
    introduction: Prose
    leave_out: list[Id] = []  # items that make sense in their own place only
    afterword: Prose


class CostRow(Written):
    """A formula beside what a run measured."""

    what: Line
    run: RunPath
    formula: Line
    predicted: Expression
    measured: Expression


class CostTable(Written):
    """Memory, or bytes, or time."""

    title: Line
    text: Prose
    rows: Annotated[list[CostRow], Field(min_length=2)]
    afterword: Prose | None = None
    claims: list[Id] = []


Quantity = Literal["count", "bytes", "seconds", "bytes_per_second", "plain"]


class CalculatorInput(Written):
    """A number that a reader sets."""

    name: Name
    label: Line
    quantity: Quantity
    start: Expression
    low: Expression
    high: Expression


class FormulaCheck(Written):
    """A run that a formula was held against: its inputs there, and what was measured."""

    run: RunPath
    given: dict[Name, Expression]
    measured: Expression


class CalculatorOutput(Written):
    """A number worked out of the inputs by `+ - * /`, brackets, `min` and `max`."""

    name: Name
    label: Line
    quantity: Quantity
    formula: Formula
    checked_on: Annotated[list[FormulaCheck], Field(min_length=1)]
    within: Tolerance  # how far off it may be on any of them; the build refuses more


class Calculator(Written):
    """A small calculator whose formulas are held against runs at every build."""

    introduction: Prose
    inputs: Annotated[list[CalculatorInput], Field(min_length=1, max_length=6)]
    outputs: Annotated[list[CalculatorOutput], Field(min_length=1, max_length=6)]


class CostFile(Written):
    """content/topics/<topic>/cost.yml: bytes, time and memory, theory beside measurement."""

    title: Line
    introduction: Prose
    commit: Id | None = None
    tables: Annotated[list[CostTable], Field(min_length=2)]
    growth: Annotated[list[Section], Field(min_length=1)]  # each with a figure of kind growth
    calculator: Calculator
    checks: list[Id] = []
    takeaway: Prose
    figures: list[Figure] = []


class HomeFile(Written):
    """content/home.yml."""

    title: Line
    promise: Prose
    figure: Figure
    how: Prose


LessonFile = (
    LearnFile
    | WhyFile
    | DeepFile
    | TraceFile
    | TryFile
    | ChallengeFile
    | ExperimentFile
    | RecallFile
    | CostFile
)
# In the order in which they are suggested.
MODES: dict[Mode, type[LessonFile]] = {
    "learn": LearnFile,
    "why": WhyFile,
    "deep": DeepFile,
    "trace": TraceFile,
    "try": TryFile,
    "challenge": ChallengeFile,
    "experiment": ExperimentFile,
    "recall": RecallFile,
    "cost": CostFile,
}

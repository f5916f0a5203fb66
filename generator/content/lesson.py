"""The lessons as an author writes them: what every lesson has, and a model for each mode.

Each is rendered by a template of the mode's name. They stand in the order in which readers meet
them; Cost is in `cost.py`, and a topic's own file in `topic.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from generator.content.exhibit import CodeNote, ExplainedProgram, Figure, Listing
from generator.content.quiz import Table
from generator.content.words import (
    ClaimId,
    Expression,
    FigureId,
    ItemId,
    Line,
    Name,
    Naming,
    Prose,
    RunPath,
    SourceId,
    Written,
)


class LessonFile(Naming):
    """content/topics/<topic>/<mode>.yml."""

    title: Line
    introduction: Prose
    figures: list[Figure] = []


class Section(Naming):
    """A titled stretch of prose with what backs it; `commit` asks before it tells.

    Attributes:
        opening: before the question, what the section is about.
        program: after the text, a mechanism in full, with its output beside it.
    """

    title: Line
    opening: Line | None = None
    commit: ItemId | None = None
    text: Prose
    figure: FigureId | None = None
    program: ExplainedProgram | None = None
    claims: list[ClaimId] = []
    sources: list[SourceId] = []


class LearnFile(LessonFile):
    """content/topics/<topic>/learn.yml: five minutes that pay off before any framework.

    Attributes:
        guess: the id of the question that readers answer first.
        seen: what runs showed, opened by the answer to `guess`.
        idea: what the technique does and why, before anything else on the page.
        program: the smallest real program, and what it printed.
    """

    guess: ItemId
    seen: Section
    idea: Prose
    figure: FigureId
    program: Listing
    walkthrough: Annotated[list[CodeNote], Field(min_length=2)]
    output_says: Prose
    checks: Annotated[list[ItemId], Field(min_length=3, max_length=3)]
    takeaway: Prose


class Decision(Written):
    """One row of a decision table: a situation, what to use, and the run that shows it.

    Attributes:
        because: why it helps there, and what it costs.
        run: the run that shows it; linked where there is no claim.
        claim: whose verdict stands beside the reason.
        planned: the layout at the size of a real model; no other may dominate it.
        fits: the situation leaves memory free, so that needing less of it is no gain.
    """

    situation: Line
    use: Line
    because: Line
    run: RunPath
    claim: ClaimId | None = None
    planned: RunPath | None = None
    fits: bool = False


class WhyFile(LessonFile):
    """content/topics/<topic>/why.yml: what it is for, what came before, when not to use it.

    Attributes:
        before: what came before it, and what that lacked; a section each.
        decisions_say: how to use the table of decisions below it.
        when_not: where something else is better; a section each.
    """

    purpose: Section
    before: Annotated[list[Section], Field(min_length=1)]
    decisions_say: Prose
    decisions: Annotated[list[Decision], Field(min_length=4)]
    when_not: Annotated[list[Section], Field(min_length=1)]
    checks: list[ItemId] = []
    takeaway: Prose


Level = Literal["Foundation", "Intermediate", "Advanced", "Expert"]


class BuildStep(Naming):
    """One step of a build-up.

    Attributes:
        concept: what this step adds, in a sentence or two; the question follows.
        result: what runs showed of it.
        insight: the sentence to keep, set off from the rest.
    """

    level: Level
    title: Line
    commit: ItemId | None = None
    concept: Prose
    explanation: Prose
    result: Prose
    insight: Prose | None = None
    figure: FigureId | None = None
    claims: list[ClaimId] = []
    sources: list[SourceId] = []


class Myth(Written):
    """A belief, what a run showed, the mechanism, why it matters; `question` asks first."""

    question: ItemId | None = None
    belief: Line
    showed: Prose
    mechanism: Prose
    why_it_matters: Prose
    claims: list[ClaimId] = []


class Pitfall(Written):
    """A mistake and its fix, both executed; with a `question`, readers look for the fault first.

    Such an item is a `faulty_line` over the same two programs, and shows both of them itself.

    Attributes:
        wrong, right: the program with the mistake, and with its fix.
        wrong_says, right_says: how to read what the program printed.
        root_cause: the reason behind what went wrong.
    """

    title: Line
    question: ItemId | None = None
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
    """What the subject is, why it matters, and what to read before and after it."""

    what: Prose
    why_it_matters: Prose
    where_it_fits: Prose
    before: list[Line]
    after: list[Line]


class MentalModel(Written):
    """The one picture to keep."""

    core_idea: Prose
    analogy: Prose | None = None
    figure: FigureId | None = None


class UnderTheHood(Written):
    """What happens inside one step."""

    text: Prose
    figure: FigureId | None = None
    sources: list[SourceId] = []
    claims: list[ClaimId] = []


class DeepFile(LessonFile):
    """content/topics/<topic>/deep.yml.

    Attributes:
        expert_zone: what only a few readers need; a section each.
        production_patterns: how large trainings use the technique; a section each.
    """

    overview: Overview
    mental_model: MentalModel
    build_up: Annotated[list[BuildStep], Field(min_length=3)]
    under_the_hood: UnderTheHood
    why_designed_this_way: Section | None = None
    myths: Annotated[list[Myth], Field(min_length=1)]
    expert_zone: list[Section]
    when_not_to_use: Section | None = None
    production_patterns: list[Section] = []
    connections: list[Connection] = []
    pitfalls: list[Pitfall]
    takeaways: list[Line]


class FlowStage(Written):
    """One row of a data-flow table; shapes, operation and values come from the trace's stage.

    Attributes:
        stage: its name in the trace, as `rank.stage("load", …)` gave it.
        whole_step: a training step as it is; what ranks communicated travels here.
    """

    stage: str
    title: Line
    note: Line
    whole_step: bool = False


class DataFlow(Written):
    """The way of the rows, stage by stage, as a run recorded it."""

    run: RunPath
    introduction: Prose
    stages: Annotated[list[FlowStage], Field(min_length=1)]


class Training(Written):
    """The curve of a whole training."""

    introduction: Prose
    figure: FigureId
    afterword: Prose | None = None


class PredictionRow(Written):
    """One step of a real batch, by the name that the run gave it."""

    step: str
    title: Line
    note: Line


class Prediction(Written):
    """One real batch through the model.

    Attributes:
        title: of the section, where it shows something else than a prediction of the model.
    """

    title: Line | None = None
    run: RunPath
    introduction: Prose
    steps: Annotated[list[PredictionRow], Field(min_length=1)]


Part = Literal["stages", "afterword", "prediction", "insight"]


class TraceFile(LessonFile):
    """content/topics/<topic>/trace.yml.

    Attributes:
        waits: the parts that answer the page's first question, closed until a reader has answered.
        data_flow, training, prediction: where a run recorded it.
        quiz: ids of the questions at the end.
    """

    commit: ItemId
    waits: list[Part] = []
    data_flow: DataFlow | None = None
    training: Training | None = None
    prediction: Prediction | None = None
    more: list[Section] = []
    quiz: Annotated[list[ItemId], Field(min_length=2)]
    key_insight: Prose


class Suggestion(Written):
    """A setting to change with `python -m runners try`, and what to look at then."""

    set: Annotated[dict[Name, int | float | str], Field(min_length=1, max_length=2)]
    look: Line


class Trial(Naming):
    """Commit to a number, see what was measured and why, then measure it yourself.

    Attributes:
        item: the id of the question, of kind `predict` or `number`.
        why: the measurement and its reason, opened by the answer.
        run: what `python -m runners try` runs; its real output is shown.
        value: an expression that starts with the run: what a reader's own run shows beside the
            book's.
        measures: what `value` is, where the output does not print it.
    """

    title: Line
    situation: Prose
    item: ItemId
    why: Prose
    run: RunPath
    value: Expression
    measures: Line | None = None
    suggestions: Annotated[list[Suggestion], Field(min_length=1)]


class TryFile(LessonFile):
    """content/topics/<topic>/try.yml."""

    trials: Annotated[list[Trial], Field(min_length=3)]
    afterword: Prose


class Problem(Naming):
    """A problem to solve against something real; `worked` comes after two attempts."""

    title: Line
    situation: Prose
    output: RunPath | None = None
    item: ItemId
    worked: Prose


class ChallengeFile(LessonFile):
    """content/topics/<topic>/challenge.yml."""

    problems: Annotated[list[Problem], Field(min_length=6)]
    afterword: Prose


class Compared(Table):
    """What was before the fix, and what is after it."""

    afterword: Prose


class Bonus(Written):
    """A further task, with its hint and what a run showed."""

    task: Prose
    hint: Prose
    answer: Prose
    listing: ExplainedProgram | Listing | None = None


class ExperimentFile(LessonFile):
    """content/topics/<topic>/experiment.yml.

    Attributes:
        asks_after_refuted: the question comes after `refuted`, because it tells what that shows.
        problem: the model, the devices, and what fails.
        issue: what the output means.
        constraints: what has to stay as it is.
        refuted: the task as set, and the run that refutes it.
        restated: the task that can be solved instead.
        solution: the program; one of the topic's own is explained line by line.
        what_changed: between the problem and the solution.
        good_for: what the fix is good for, and what not.
        surprises: results that readers would not have predicted.
    """

    commit: ItemId
    asks_after_refuted: bool = False
    problem: Prose
    output: RunPath | None = None
    issue: Prose | None = None
    task: Prose
    constraints: list[Line] = []
    refuted: Section | None = None
    restated: Section | None = None
    hints: list[Prose] = []
    solution: ExplainedProgram | Listing
    what_changed: list[Line] = []
    compared: Compared | None = None
    good_for: Section | None = None
    surprises: list[Line] = []
    more: list[Section] = []
    bonus: Bonus | None = None
    claims: list[ClaimId] = []


class RecallFile(LessonFile):
    """content/topics/<topic>/recall.yml: the topic's items again, each when it is due.

    Attributes:
        figures: none; Recall draws none of its own.
        leave_out: ids of questions that make sense on their own page only; Recall leads there.
    """

    figures: Annotated[list[Figure], Field(max_length=0)] = []
    leave_out: list[ItemId] = []
    afterword: Prose


class WorkedStep(Naming):
    """One step of the example; `commit` asks before it tells.

    Attributes:
        first_column: what the titles of the table's rows are.
        table: values, after the text and the figure.
        afterword: what to see in the table.
    """

    title: Line
    commit: ItemId | None = None
    text: Prose
    figure: FigureId | None = None
    first_column: Line | None = None
    table: Table | None = None
    afterword: Prose | None = None
    claims: list[ClaimId] = []
    sources: list[SourceId] = []


class WorkedFile(LessonFile):
    """content/topics/<topic>/worked.yml: one case, term by term."""

    steps: Annotated[list[WorkedStep], Field(min_length=2)]
    checks: list[ItemId] = []
    takeaway: Prose

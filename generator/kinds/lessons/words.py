"""The lessons as an author writes them: a model for each mode. A function composes each."""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from proofbook.generator.content import words
from proofbook.generator.content.exhibit import ExplainedProgram, Listing
from proofbook.generator.content.lesson import Backed, CostRow, LessonFile, LessonTable, Section
from proofbook.generator.kinds.calculators.words import Calculator


class LearnFile(LessonFile):
    """content/topics/<topic>/learn.yml: five minutes that pay off before any framework."""

    commit: words.ItemId
    """the id of the question that readers answer first."""
    seen: Section
    """what runs showed, opened by the answer to `commit`."""
    idea: words.Prose
    """what the technique does and why, before anything else on the page."""
    figure: words.FigureId
    more: list[Section] = []
    """further parts of the idea, with figures of their own."""
    program: ExplainedProgram
    """the smallest real program, and what it printed."""
    checks: Annotated[list[words.ItemId], Field(min_length=3, max_length=3)]
    takeaway: words.Prose


class Decision(words.Written):
    """One row of a decision table: a situation, what to use, and the run that shows it."""

    situation: words.Line
    use: words.Line
    because: words.Line
    """why it helps there, and what it costs."""
    run: words.RunPath
    """the run that shows it; linked where there is no claim."""
    claim: words.ClaimId | None = None
    """whose verdict stands beside the reason."""
    planned: words.RunPath | None = None
    """the layout at the size of a real model; no other may dominate it."""
    fits: bool = False
    """the situation leaves memory free, so that needing less of it is no gain."""


class WhyFile(LessonFile):
    """content/topics/<topic>/why.yml: what it is for, what came before, when not to use it."""

    purpose: Section
    before: Annotated[list[Section], Field(min_length=1)]
    """what came before it, and what that lacked; a section each."""
    decisions_say: words.Prose
    """how to use the table of decisions below it."""
    decisions: Annotated[list[Decision], Field(min_length=4)]
    when_not: Annotated[list[Section], Field(min_length=1)]
    """where something else is better; a section each."""
    checks: list[words.ItemId] = []
    takeaway: words.Prose


class CostTable(Backed):
    """Memory, or bytes, or time; `claims` are those that back it beside the laws of its rows."""

    title: words.Line
    rows: Annotated[list[CostRow], Field(min_length=2)]
    afterword: words.Prose | None = None
    waits: bool = False
    """it answers the page's first question, and is closed until a reader has answered."""

    @property
    def backed_by(self) -> list[str]:
        """The laws of the rows, then the other claims, each once."""
        laws = [row.law for row in self.rows]
        return list(dict.fromkeys([*laws, *self.claims]))


class CostFile(LessonFile):
    """content/topics/<topic>/cost.yml: bytes, time and memory, theory beside measurement."""

    commit: words.ItemId
    tables: Annotated[list[CostTable], Field(min_length=2)]
    calculator: Calculator
    checks: list[words.ItemId] = []
    takeaway: words.Prose


Level = Literal["Foundation", "Intermediate", "Advanced", "Expert"]


class BuildStep(Backed):
    """One step of a build-up; its text explains the concept."""

    level: Level
    title: words.Line
    core: bool = False
    """one of some five pages that everybody should read; where none is marked, every step is."""
    commit: words.ItemId | None = None
    concept: words.Prose
    """what this step adds, in a sentence or two; the question follows, or a number's, the text."""
    result: words.Prose
    """what runs showed of it."""
    shows: words.FigureId | None = None
    """its figure, after the result."""
    table: LessonTable | None = None
    """its values, after the result."""
    program: ExplainedProgram | None = None
    """what the result rests on, whole."""
    insight: words.Prose | None = None
    """the sentence to keep, set off from the rest."""


class Myth(words.Written):
    """A belief, what a run showed, the mechanism, why it matters; `commit` asks first."""

    commit: words.ItemId | None = None
    belief: words.Line
    showed: words.Prose
    shows: words.FigureId | None = None
    """a figure of what a run showed."""
    mechanism: words.Prose
    why_it_matters: words.Prose
    claims: list[words.ClaimId] = []


class Pitfall(words.Written):
    """A mistake and its fix, both executed; with a `commit`, readers look for the fault first.

    Such an item is a `faulty_line` over the same two programs, and shows both of them itself.
    """

    title: words.Line
    commit: words.ItemId | None = None
    wrong: Listing
    """the program with the mistake, and with its fix."""
    wrong_says: words.Prose
    """how to read what the program printed."""
    right: Listing
    """the program with the mistake, and with its fix."""
    right_says: words.Prose
    """how to read what the program printed."""
    root_cause: words.Prose
    """the reason behind what went wrong."""


class Overview(words.Written):
    """What the subject is, why it matters, and what to read before and after it."""

    what: words.Prose
    why_it_matters: words.Prose
    where_it_fits: words.Prose
    before: list[words.Line]
    after: list[words.Line]


class MentalModel(words.Written):
    """The one picture to keep."""

    core_idea: words.Prose
    analogy: words.Prose | None = None
    figure: words.FigureId | None = None


class Openings(words.Written):
    """How the pages after the steps begin."""

    under_the_hood: words.Prose
    by_hand: words.Prose | None = None
    """of the sections with a program, if there are any."""
    in_practice: words.Prose
    myths: words.Prose
    pitfalls: words.Prose | None = None


class DeepFile(LessonFile):
    """content/topics/<topic>/deep.yml: an overview, and a chain of pages (`chain.py`)."""

    overview: Overview
    openings: Openings
    mental_model: MentalModel
    build_up: Annotated[list[BuildStep], Field(min_length=3)]
    """a page each."""
    under_the_hood: Backed
    """what happens inside one step."""
    why_designed_this_way: Section | None = None
    myths: Annotated[list[Myth], Field(min_length=1)]
    expert_zone: list[Section]
    """what only a few readers need; a section each."""
    when_not_to_use: Section | None = None
    production_patterns: list[Section] = []
    """how large trainings use the technique; a section each."""
    connections: list[Section] = []
    """other fields that the idea connects to; a section each."""
    pitfalls: list[Pitfall]
    takeaways: list[words.Line]


class RecordedRow(words.Written):
    """One row; shapes, operation and values come from the trace."""

    name: str
    """in the trace, as `rank.stage("load", …)` gave it."""
    title: words.Line
    note: words.Line
    whole_step: bool = False
    """a training step as it is; what ranks communicated travels here."""


class Recorded(words.Written):
    """What a run recorded, row by row."""

    title: words.Line | None = None
    """of the section, where it shows something else than its place in the lesson says."""
    run: words.RunPath
    introduction: words.Prose
    rows: Annotated[list[RecordedRow], Field(min_length=1)]


class TrainingCurve(words.Written):
    """The curve of a whole training."""

    introduction: words.Prose
    figure: words.FigureId
    afterword: words.Prose | None = None


class TraceFile(LessonFile):
    """content/topics/<topic>/trace.yml."""

    commit: words.ItemId
    """the id of the question whose answer opens the takeaway."""
    data_flow: Recorded | None = None
    """the way of the samples, stage by stage, where a run recorded it."""
    training: TrainingCurve | None = None
    """the curve of a whole training, likewise."""
    prediction: Recorded | None = None
    """one real batch through the model, likewise."""
    more: list[Section] = []
    checks: Annotated[list[words.ItemId], Field(min_length=2)]
    """ids of the questions at the end."""
    takeaway: words.Prose


class Suggestion(words.Written):
    """A setting to change with `python -m runners try`, and what to look at then."""

    set: Annotated[dict[words.Name, int | float | str], Field(min_length=1, max_length=2)]
    look: words.Line


class Trial(words.Written):
    """Commit to a number, see what was measured and why, then measure it yourself."""

    title: words.Line
    situation: words.Prose
    item: words.ItemId
    """the id of the question, of kind `predict` or `number`."""
    why: words.Prose
    """the measurement and its reason, opened by the answer."""
    run: words.RunPath
    """what `python -m runners try` runs; its real output is shown."""
    value: words.Expression
    """an expression that starts with the run: what a reader's own run shows beside the book's."""
    measures: words.Line | None = None
    """what `value` is, where its output does not name it."""
    suggestions: Annotated[list[Suggestion], Field(min_length=1)]


class TryFile(LessonFile):
    """content/topics/<topic>/try.yml."""

    trials: Annotated[list[Trial], Field(min_length=3)]
    afterword: words.Prose


class Problem(words.Written):
    """A problem to solve against something real; `worked` comes after two attempts."""

    title: words.Line
    situation: words.Prose
    output: words.RunPath | None = None
    steps: list[words.ItemId] = []
    """ids of questions before it, such as the steps of a diagnosis."""
    item: words.ItemId
    worked: words.Prose


class ChallengeFile(LessonFile):
    """content/topics/<topic>/challenge.yml."""

    problems: Annotated[list[Problem], Field(min_length=6)]
    afterword: words.Prose


class Bonus(words.Written):
    """A further task, with its hint and what a run showed."""

    task: words.Prose
    hint: words.Prose
    answer: words.Prose
    listing: ExplainedProgram | Listing | None = None


class ExperimentFile(LessonFile):
    """content/topics/<topic>/experiment.yml."""

    commit: words.ItemId
    asks_after_task: bool = False
    """the question comes after the task, which readers try first."""
    problem: words.Prose
    """the model, the devices, and what fails."""
    output: words.RunPath | None = None
    issue: words.Prose | None = None
    """what the output means."""
    task: words.Prose
    constraints: list[words.Line] = []
    """what has to stay as it is."""
    refuted: Section | None = None
    """the task as set, and the run that refutes it."""
    restated: Section | None = None
    """the task that can be solved instead."""
    hints: list[words.Prose] = []
    solution: ExplainedProgram | Listing
    """the program; one of the topic's own is explained line by line."""
    what_changed: list[words.Line] = []
    """between the problem and the solution."""
    compared: LessonTable | None = None
    """what was before the fix, and what is after it."""
    good_for: Section | None = None
    """what the fix is good for, and what not."""
    surprises: list[words.Line] = []
    """results that readers would not have predicted."""
    more: list[Section] = []
    bonus: Bonus | None = None
    claims: list[words.ClaimId] = []


class RecallFile(LessonFile):
    """content/topics/<topic>/recall.yml: the topic's items again, each when it is due."""

    leave_out: list[words.ItemId] = []
    """ids of questions that make sense on their own page only; Recall leads there."""
    afterword: words.Prose

    def asked(self, named: Iterable[str], known: Collection[str]) -> Iterator[str]:
        """All of its topic's, but those that it leaves out."""
        yield from (name for name in known if name not in self.leave_out)


class WorkedFile(LessonFile):
    """content/topics/<topic>/worked.yml: one case, term by term."""

    steps: Annotated[list[Section], Field(min_length=2)]
    checks: list[words.ItemId] = []
    takeaway: words.Prose

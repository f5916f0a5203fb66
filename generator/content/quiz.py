"""Questions as an author writes them: eight kinds, told apart by `kind`.

A key is never typed. An option is right where the claim behind it has the verdict that it names, on
the machine whose numbers the page shows; a number is an expression over the traces; an order comes
from values or from what a run recorded; a faulty line is the one that the corrected program, which
a run executed, no longer has there. `generator/items/kinds` works the keys out and refuses items
without one.
"""

from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from generator.content.cases import bound, in_texts
from generator.content.claim import SEVERAL, Tolerance, Verdict
from generator.content.exhibit import Executed
from generator.content.words import (
    Bound,
    ClaimId,
    Expression,
    Id,
    Line,
    MisconceptionId,
    Prose,
    RunPath,
    Written,
    of_runs,
)


class RightIf(Written):
    """The claim, and its verdict, that make an option right."""

    claim: ClaimId
    verdict: Verdict = "holds"


class Slip(Written):
    """A number that a named mistake gives, computed over the same trace as the right one."""

    name: Line
    """what was done wrong, as in “the sum over the ranks instead of their mean”."""
    gives: Expression
    """an expression: the number that it gives."""
    misconception: MisconceptionId | None = None
    why: Line | None = None
    """beyond what the name says."""


class Option(Written):
    """One answer, and why it is right or wrong.

    One that can be wrong names its misconception. What `right_if` or `refuted_by` names decides
    whether it is right; where neither stands, or more claims are needed to tell, `decides` names
    them. Where none of the three stands, the claim decides that refutes the misconception.
    """

    text: Line
    why: Line
    right_if: RightIf | None = None
    misconception: MisconceptionId | None = None
    refuted_by: ClaimId | None = None
    """the claim that refutes a wrong answer; it holds, and is shown as the evidence."""
    decides: Annotated[list[ClaimId], SEVERAL] = []
    """claims that decide it, whatever their verdict; they are not shown."""

    @model_validator(mode="before")
    @classmethod
    def _decided(cls, written: object, known: ValidationInfo) -> object:
        """What refutes its misconception, by `context`, refutes an option that names no claim."""
        if isinstance(written, dict) and not {"right_if", "refuted_by", "decides"} & {*written}:
            if "misconception" not in written:
                raise ValueError("name the claim that decides it: right_if:, refuted_by:, decides:")
            claim = (known.context or {}).get(str(written["misconception"]))
            return {**written, "refuted_by": claim}
        return written

    @model_validator(mode="after")
    def _right_or_believed(self, known: ValidationInfo) -> Self:
        """What refutes a misconception leaves the option that names it wrong."""
        refutes = self.refuted_by or (known.context or {}).get(str(self.misconception))
        right = self.right_if
        if self.misconception and right and (right.claim != refutes or right.verdict == "holds"):
            raise ValueError(
                f"where {refutes} holds, which refutes its misconception, an option is wrong: "
                "name it in right_if:, with verdict: does_not_hold"
            )
        return self


class TableRow(Written):
    """A row of a table of values."""

    title: Line
    cells: Annotated[list[Expression], Field(min_length=1)]


class Table(Written):
    """A table of values, whole."""

    columns: Annotated[list[Line], Field(min_length=1)]
    rows: Annotated[list[TableRow], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_full(self) -> Self:
        if any(len(row.cells) != len(self.columns) for row in self.rows):
            raise ValueError("each row needs as many cells as there are columns")
        return self


class _Item(Written):
    """What every question has.

    It is as in its first case; `others` are what it is in the others.
    """

    id: Id
    """how a reader's progress is kept; never reused for another question."""
    cases: Annotated[
        list[Bound],
        BeforeValidator(of_runs, json_schema_input_type=list[RunPath | Bound]),
        Field(alias="for"),
    ] = []
    """what the question is asked of: the first case on pages, all of them in turn on Recall pages.
    Each binds the same names, to runs (`run: ddp.ddp`), to numbers (`rank: 3`), to ids of claims,
    or to words, which `{{ called }}` prints."""
    revision: Annotated[int, Field(ge=1)] = 1
    """raised by the author when the item has become another question: answers that were kept before
    then no longer count."""
    kept_as: Literal["complete"] | None = None
    """the kind under which answers were kept before the item had this one."""
    stem: Prose
    """the question."""
    hints: list[Line] = []
    explains: Prose | None = None
    """the mechanism, shown with the answer."""
    claims: list[ClaimId] = []
    """evidence shown with the answer, beside what options name."""
    this_table: Table | None = None
    """values that the question is about, shown below the stem. Where times decide the key, show
    them here: on another machine both the times and the key are others."""
    _others: tuple[Self, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _bind_alike(self) -> Self:
        if len(self.cases) == 1:
            raise ValueError("for: has one case; write its run into the texts instead")
        if any(case.keys() != self.cases[0].keys() for case in self.cases):
            raise ValueError("each case of for: binds the same names")
        return self

    @property
    def others(self) -> tuple[Self, ...]:
        """The same part in each further case, under an id of its own."""
        return self._others


ItemT = TypeVar("ItemT", bound=_Item)


class Choice(_Item):
    """One answer is right."""

    kind: Literal["choice"] = "choice"
    options: Annotated[list[Option], Field(min_length=2)]


class Several(_Item):
    """Any number of answers, at least one, are right; each stands or falls with its claim."""

    kind: Literal["several"]
    options: Annotated[list[Option], Field(min_length=3)]


class Number(_Item):
    """A number to type, in the unit that the answer prints in, or a shape such as 50 × 20."""

    kind: Literal["number"]
    answer: Expression
    tolerance: Tolerance | None = None
    why: Line
    slips: list[Slip] = []


class Piece(Written):
    """One thing to put in its place."""

    text: Line
    why: Line
    by: Expression | None = None
    """an expression to sort by."""
    recorded: str | None = None
    """instead, the name of a stage or a step that `run` recorded."""


class Order(_Item):
    """Pieces to put in order: by a value of each, or as a run recorded them."""

    kind: Literal["order"]
    pieces: Annotated[list[Piece], Field(min_length=3, max_length=6)]
    descending: bool = False
    run: RunPath | None = None
    """whose recorded order is the right one, where pieces say `recorded`."""
    ends: tuple[Line, Line] | None = None
    """words for the first and the last place."""

    @model_validator(mode="after")
    def _sorted_in_one_way(self) -> Self:
        if any(
            (one.recorded is None, one.by is None) != (not self.run, bool(self.run))
            for one in self.pieces
        ):
            raise ValueError("each piece needs recorded: where the item has run:, else by:")
        return self


class Pair(Written):
    """Two things that belong together; the right side holds a value, or a claim backs the pair."""

    left: Line
    right: Line
    why: Line
    claim: ClaimId | None = None


class Match(_Item):
    """Left and right sides to bring together."""

    kind: Literal["match"]
    pairs: Annotated[list[Pair], Field(min_length=3, max_length=5)]


class Predict(_Item):
    """A number to commit to before it is revealed, on a slider or in a field; not graded."""

    kind: Literal["predict"]
    answer: Expression
    low: Expression
    """expressions: the ends of the slider, from which the answer cannot be read."""
    high: Expression
    """expressions: the ends of the slider, from which the answer cannot be read."""
    tolerance: Tolerance
    reveal: Prose
    """the result and its reason, shown after the guess."""
    slips: list[Slip] = []
    why: ClassVar[None] = None  # what is revealed explains the answer


class CodeLine(Written):
    """A line that a reader may pick, written as it stands in the code, without its indent."""

    code: str
    why: Line
    misconception: MisconceptionId | None = None


class FaultyLine(_Item):
    """Find the line at fault: the one of `lines` that the corrected program no longer has there."""

    kind: Literal["faulty_line"]
    wrong: Executed
    right: Executed
    lines: Annotated[list[CodeLine], Field(min_length=3, max_length=6)]


def _written_out(item: ItemT) -> ItemT:
    """An item as it is in its first case, which has beside it what it is in the others."""
    if not item.cases:
        return item
    first, *others = (in_texts(item, bound(case)) for case in item.cases)
    first._others = tuple(
        one.model_copy(update={"id": f"{item.id}-variant-{number}"})
        for number, one in enumerate(others, 1)
    )
    return first


def _with_kind(written: object) -> object:
    """Items with their kinds; one right answer where none is named."""
    if not isinstance(written, list):
        return written
    return [{"kind": "choice", **one} if isinstance(one, dict) else one for one in written]


Item = Choice | Several | Number | Order | Match | Predict | FaultyLine


class QuizFile(Written):
    """content/topics/<topic>/quiz.yml: items that modes name by id."""

    items: Annotated[
        list[Annotated[Item, Field(discriminator="kind"), AfterValidator(_written_out)]],
        BeforeValidator(_with_kind, json_schema_input_type=list[Item]),
    ]

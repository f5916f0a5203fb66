"""Questions as an author writes them: what all kinds of them have.

A key is never typed. Each kind has its keys in a module of its own, beside what works the answers
out of the runs; `AnyItem` is completed there.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from proofbook.generator.content import words
from proofbook.generator.content.cases import bind_part, names_of_case
from proofbook.generator.content.draws import NUM_ASKED, Draws, short_names
from proofbook.generator.content.exhibit import Exhibit, ValueTable
from proofbook.generator.content.yaml_source import Path
from proofbook.runners.system.errors import near


class Item(words.Written):
    """What every question has.

    It is as in its first case; `others` are what it is in the others.
    """

    id: words.Id
    """how a reader's progress is kept; never reused for another question."""
    cases: Annotated[
        list[words.Bound],
        BeforeValidator(
            words.runs_as_cases, json_schema_input_type=list[words.RunPath | words.Bound]
        ),
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
    stem: words.Prose
    """the question."""
    hints: list[words.Line] = []
    explains: words.Prose | None = None
    """the mechanism, shown with the answer."""
    claims: list[words.ClaimId] = []
    """evidence shown with the answer, beside what options name."""
    asks: list[words.ValueName] = []
    """the values that the question asks for, by their names in traces: `peak_bytes`, or, of one
    experiment or run, `sharding.peak_bytes`. The claim of each right option or pair reads one of
    them, so that the key changes with what the question asks for."""
    source: words.Line | None = None
    """outside a book: where exactly the answer stands, with a link where there is one. The page
    shows it as *cited*, and the item's texts may hold numbers. A book refuses it."""
    this_table: ValueTable | None = None
    """values that the question is about, shown below the stem. Where times decide the key, show
    them here: on another machine both the times and the key are others."""
    exhibit: Exhibit | None = None
    """a figure, a program or a log that the question is about, shown below the stem."""
    kind: str
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
        """The item in its further cases or draws, each under an id of its own."""
        return self._others


class Drawable(Item):
    """A question that can draw its numbers."""

    draws: Draws | None = None
    """settings that are drawn from sets; pages ask the first draw, Recall several in turn."""
    _written: Self | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _drawn_or_bound(self) -> Self:
        if self.draws and self.cases:
            raise ValueError("draws: and for: exclude each other")
        return self

    @property
    def as_written(self) -> Self:
        """The item before its first draw was written into its texts."""
        return self._written or self

    def backed_by_law(self, law: str) -> Self:
        """A copy whose key rests on the law of its draws."""
        raise NotImplementedError

    def answer_expressions(self) -> Iterator[tuple[Path, str]]:
        """Path and expression of each answer, the right one first."""
        raise NotImplementedError


ItemT = TypeVar("ItemT", bound=Item)


def _written_out(question: ItemT) -> ItemT:
    """An item in its first case or draw, with itself in the other ones as `others`."""
    names = [names_of_case(case) for case in question.cases]
    if isinstance(question, Drawable) and (draws := question.draws):
        question = question.backed_by_law(draws.law)
        names = [short_names(draw) for draw in draws.shuffled(question.id)[:NUM_ASKED]]
    if not names:
        return question
    first, *others = (bind_part(question, case) for case in names)
    if isinstance(first, Drawable):
        first._written = question  # type: ignore[assignment]
    first._others = tuple(
        other.model_copy(update={"id": f"{question.id}-variant-{number}"})
        for number, other in enumerate(others, 1)
    )
    return first


def _with_kind(written: object) -> object:
    """An item with its kind, also under a misspelt key; without one, a choice."""
    if not isinstance(written, dict) or "kind" in written:
        return written
    kinds = (value for key, value in written.items() if near(key, ["kind"], 0.7))
    return {"kind": next(kinds, "choice"), **written}


if TYPE_CHECKING:
    AnyItem = Item  # of any of the kinds that there are
WholeItem = Annotated[
    "AnyItem",
    Field(discriminator="kind"),
    AfterValidator(_written_out),
    BeforeValidator(_with_kind, json_schema_input_type="AnyItem"),
]


class QuizFile(words.Written):
    """content/topics/<topic>/quiz.yml: items that modes name by id.

    The kinds of items complete it (`kinds/questions/kinds`).
    """

    items: list[WholeItem]


class QuizFence(QuizFile):
    """A fence `quiz` in a page: the id of an item, a list of ids, or an item, whole."""

    items: list[WholeItem] = []
    names: list[words.ItemId] = []

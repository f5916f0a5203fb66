"""What every kind of question has: a key, what decides it, its answers explained, and its form.

A module of this folder holds a kind: a model, the keys that authors write, and its class.

In: an item, and the evidence. Out: the item on this book's runs. What is a mistake where
the book was written (two right options, two equal values) only leaves a question open where another
machine's runs came out differently.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from markupsafe import Markup
from pydantic import BaseModel

from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.quiz import Item
from proofbook.generator.content.yaml_source import Mistake, Path
from proofbook.generator.kinds.questions.answers import ExplainedAnswer
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Value


class ItemError(ContentError):
    """A mistake inside an item, at a path that starts at the item."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__("", 0, 0, message)
        self.path = path


@dataclass(frozen=True)
class Key:
    """The right answer of a question on these runs."""

    is_open: bool = False  # this machine's runs leave it open, so pages show no key
    right: tuple[int, ...] = ()  # positions of what is right, as written; of an order, all
    value: Value | None = None  # of what is typed: the value asked for
    # What each slip gives; None where this machine lacks it, or where it comes to the answer or to
    # a slip above it.
    slips: tuple[Value | None, ...] = ()


OPEN = Key(is_open=True)


class FieldUnit(NamedTuple):
    """What a number is asked in: a label such as `MiB`, and its size in base units."""

    label: str
    scale: float


class End(NamedTuple):
    """An end of a slider: in base units, in the unit of the field, and with a value that opens."""

    number: float
    says: str
    opened: Markup


class AnswerField(NamedTuple):
    """The field for a number, a word or a shape."""

    unit: FieldUnit  # what a number is asked in
    is_number: bool  # whether a number is asked for, and no shape or word
    ends: tuple[End, End] | None = None  # of a slider on which this machine's answer lies


def is_alike(value: Value, other: Value) -> bool:
    """Whether two values have units that can be added; where either is text, the same unit."""
    if "text" in (value.unit.style, other.unit.style):
        return value.unit == other.unit
    try:
        units.of_sum(value.unit, other.unit)
    except units.UnitError:
        return False
    return True


ItemT = TypeVar("ItemT", bound=Item)


class QuestionKind(Generic[ItemT]):
    """An item of one kind on this book's runs."""

    BY_MODEL: ClassVar[dict[type[Item], type["QuestionKind[Any]"]]] = {}

    instruction = ""  # what stands above the question
    is_graded = True  # or a commitment, which has no right and wrong
    is_ordered = False  # whether its key is an order, which is never shown from the start
    is_sequence = False  # whether its answers are explained as a numbered list
    has_one_key = False  # whether the same answer has to be right in all of its cases
    # The key of its options, pieces, pairs or lines, which also names its form (`form_of` of
    # `elements.j2`); none where a reader types.
    places = ""
    texts: tuple[str, ...] = ("text",)  # the keys of one of these that a reader sees at once
    backed_by = ""  # the key of one of these that names a claim as evidence

    def __init_subclass__(cls, of: type[Item] | None = None) -> None:
        """Make known whose kind it is."""
        if of:
            cls.BY_MODEL[of] = cls

    def __init__(self, question: ItemT, evidence: Evidence) -> None:
        self.item = question
        self.evidence = evidence

    @cached_property
    def key(self) -> Key:
        """A `Key`, the right answer; ItemError if there is none, or two where one is asked for.

        ContentError if one of its expressions fails.
        """
        raise NotImplementedError

    @property
    def parts(self) -> Sequence[BaseModel]:
        """Its options, pieces, pairs or lines, as written; none where a number is typed."""
        parts: Sequence[BaseModel] = getattr(self.item, self.places, ())
        return parts

    @property
    def num_places(self) -> int:
        """Number of options, pieces, pairs or lines."""
        return len(self.parts)

    @property
    def visible_texts(self) -> tuple[str, ...]:
        """Printed stem, and the printed texts of its parts."""
        texts = (" ".join(getattr(part, name) for name in self.texts) for part in self.parts)
        return tuple(self.evidence.plain(text) for text in (self.item.stem, *texts))

    def shown_claims(self) -> Iterator[tuple[Path, str]]:
        """Yield (path, claim id) of each claim shown as evidence: the item's, then its parts'."""
        for number, claim in enumerate(self.item.claims):
            yield ("claims", number), claim
        for number, part in enumerate(self.parts if self.backed_by else ()):
            if claim := getattr(part, self.backed_by):
                yield (self.places, number, self.backed_by), claim

    def deciding_claims(self) -> Iterator[tuple[Path, str]]:
        """Yield (path, claim id) of each claim that makes a part right on these runs."""
        for number, part in enumerate(self.parts):
            for key in ("right_if", "claim") if number in self.key.right else ():
                if named := getattr(part, key, None):
                    yield (self.places, number, key), getattr(named, "claim", named)

    @property
    def explains(self) -> str | None:
        """The explanation shown with the answer."""
        return self.item.explains

    @property
    def digest_source(self) -> str:
        """What decides whether an answer means the same: what is right, as written, of how many."""
        return f"{self.key.right} of {self.num_places}"

    def key_mistakes(self) -> Iterator[Mistake]:
        """Mistakes of its key on these runs."""
        _ = self.key
        yield from ()

    def answers(self, folio: Folio) -> tuple[ExplainedAnswer, ...]:
        """Every answer explained: as the page shows them, but an order as it is right."""
        solved = self.key.right or range(self.num_places)
        order = solved if self.is_ordered else self.page_order()
        return tuple(self._explained(place, folio) for place in order)

    def _explained(self, place: int, folio: Folio) -> ExplainedAnswer:
        raise NotImplementedError

    def field(self, folio: Folio) -> AnswerField | None:
        """The field that a reader types into, if the kind has one and its key is known."""
        return None

    def page_order(self) -> tuple[int, ...]:
        """Positions as a page shows them: shuffled by id, never an ordering's key; two as written.

        The author's order thus does not reveal the key; an ordering is never shown solved.
        """
        if self.num_places == 2:
            return (0, 1)
        attempt = 0
        while (order := self._shuffled(attempt)) == self.key.right and self.is_ordered:
            attempt += 1
        return order

    def _shuffled(self, attempt: int) -> tuple[int, ...]:
        def place(position: int) -> bytes:
            return hashlib.sha256(f"{self.item.id} {attempt} {position}".encode()).digest()

        return tuple(sorted(range(self.num_places), key=place))

    def refused(self, path: Path, message: str) -> Key:
        """ItemError where these runs decide what is a mistake; on other machines an open key."""
        if self.is_decided:
            raise ItemError(path, message)
        return OPEN

    @property
    def is_decided(self) -> bool:
        """Whether these are the reference machine's runs, on which a missing key is a mistake."""
        return self.evidence.reference is None

    def verdict(self, position: int) -> str:
        """`right`, `wrong` or `open` for an answer at a position."""
        return "open" if self.key.is_open else "right" if position in self.key.right else "wrong"

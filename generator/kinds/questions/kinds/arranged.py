"""Questions whose answers are arranged: pieces put in order, and pairs brought together."""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from proofbook.generator.content import prose
from proofbook.generator.content.errors import nearest
from proofbook.generator.content.quiz import Item
from proofbook.generator.content.words import ClaimId, Expression, Line, RunPath, Written
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.kinds.questions.answers import ExplainedAnswer, claim_backing
from proofbook.generator.kinds.questions.kinds import base
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.filters import LABELS
from proofbook.generator.values.value import Value, numeric


class Piece(Written):
    """One thing to put in its place."""

    ONE_OF = (("by", "recorded"),)
    text: Line
    why: Line
    by: Expression | None = None
    """an expression to sort by."""
    recorded: str | None = None
    """instead, the name of a stage or a step that `run` recorded."""


class Ordering(Item):
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
        if any(bool(piece.recorded) != bool(self.run) for piece in self.pieces):
            raise ValueError("each piece needs recorded: where the item has run:, else by:")
        return self


class Pieces(base.QuestionKind[Ordering], of=Ordering):
    """The order follows from the values, or from the stages or steps of one run."""

    places = "pieces"
    instruction = "put in order"
    is_ordered = is_sequence = has_one_key = True

    @cached_property
    def key(self) -> base.Key:
        """A `Key`: positions by value, or as recorded; open without all values, refused if tied."""
        if self.item.run:
            return self._as_recorded(self.item.run)
        values = [self.evidence.value(piece.by) for piece in self.item.pieces if piece.by]
        known: dict[int, Value] = {n: value for n, value in enumerate(values) if value is not None}
        if len(known) < len(values):
            return base.OPEN
        for place, value in known.items():
            if not base.is_alike(known[0], value):
                message = f"a piece in {value.unit} has no place among those in {known[0].unit}"
                raise base.ItemError(("pieces", place, "by"), message)
        order = sorted(known, key=lambda n: numeric(known[n]), reverse=self.item.descending)
        for before, after in pairwise(order):
            if numeric(known[before]) == numeric(known[after]):
                both = " and ".join(repr(self.item.pieces[place].text) for place in (before, after))
                message = f"{both} have the same value; no order"
                return self.refused(("pieces", after, "by"), message)
        return base.Key(right=tuple(order))

    def _as_recorded(self, path: str) -> base.Key:
        run = self.evidence.book.run(path)
        if run is None or run.status == "skipped" or run.is_surprise:
            return base.OPEN
        names = [str(piece.recorded) for piece in self.item.pieces]
        recorded = [stage.name for stage in run.stages]
        if not set(names) & set(recorded):
            recorded = [step.name for step in run.prediction]
        for place, name in enumerate(names):
            at = "pieces", place, "recorded"
            if name not in recorded:
                message = f"{path} recorded no stage or step {name!r}{nearest(name, recorded)}"
                return self.refused(at, message)
            if name in names[:place]:
                raise base.ItemError(at, f"another piece is {name!r} already; no order")
        return base.Key(
            right=tuple(sorted(range(len(names)), key=lambda n: recorded.index(names[n])))
        )

    def _explained(self, place: int, folio: Folio) -> ExplainedAnswer:
        piece = self.item.pieces[place]
        beside = folio.cell(piece.by) if piece.by else None
        text, why = folio.line(piece.text), folio.line(piece.why)
        return ExplainedAnswer(text, why, "right", position=place, beside=beside)


class Pair(Written):
    """Two things that belong together; the right side holds a value, or a claim backs the pair."""

    left: Line
    right: Line
    why: Line
    claim: ClaimId | None = None


class Match(Item):
    """Left and right sides to bring together."""

    kind: Literal["match"]
    pairs: Annotated[list[Pair], Field(min_length=3, max_length=5)]


class Pairs(base.QuestionKind[Match], of=Match):
    """Each left side belongs to the right side that the author wrote beside it."""

    places = "pairs"
    instruction = "match the pairs"
    is_ordered = True
    texts = ("left", "right")
    backed_by = "claim"

    @cached_property
    def key(self) -> base.Key:
        """A `Key`: pairs as written; open unless its claims hold, refused if sides are alike."""
        sides = [self.evidence.plain(pair.right) for pair in self.item.pairs]
        for place, side in enumerate(sides):
            if side in sides[:place]:
                alike = f"the right side is {side!r} here too, as in pair {sides.index(side) + 1}"
                return self.refused(("pairs", place, "right"), f"{alike}; let them differ")
        claims = [pair.claim for pair in self.item.pairs if pair.claim]
        if any(self.evidence.judged(claim).verdict != "holds" for claim in claims):
            return base.OPEN
        return base.Key(right=tuple(range(self.num_places)))

    def key_mistakes(self) -> Iterator[Mistake]:
        """Yield (path, message): pairs without claim, source or value; mistakes of the key."""
        for place, pair in enumerate(self.item.pairs):
            is_backed = pair.claim or self.item.source
            if not is_backed and all(
                # A label names something, and states nothing of it.
                expression.partition("(")[0].rstrip() in LABELS
                or self.evidence.prints_typed_number(expression)
                for _, expression in prose.expressions(pair.right)
            ):
                lack = "nothing backs this pair; print a value in right: or name its claim:"
                yield ("pairs", place), lack
        yield from super().key_mistakes()

    def _explained(self, place: int, folio: Folio) -> ExplainedAnswer:
        pair = self.item.pairs[place]
        text, why, beside = map(folio.line, (pair.left, pair.why, pair.right))
        backing = (claim_backing(pair.claim, folio),) if pair.claim else ()
        return ExplainedAnswer(text, why, "right", "", place, backing, beside)

"""Left and right sides to match: the right side holds a value, or a claim backs the pair."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from markupsafe import Markup

from generator.content import prose
from generator.content.quiz import Match
from generator.content.typesetting import plain
from generator.evidence.filters import LABELS
from generator.evidence.folio import Folio
from generator.items.answers import Answer, claim_behind
from generator.items.kinds.kind import (
    OPEN,
    Asked,
    Form,
    Found,
    ItemError,
    Key,
    Kind,
    unopened,
)

_LABEL = re.compile(rf"(?:{'|'.join(LABELS)})\s*\(")  # names something, and states nothing of it


class Pairs(Kind[Match]):
    """Each left side belongs to the right side that the author wrote beside it."""

    is_ordered = True
    places = "pairs"

    @cached_property
    def key(self) -> Key:
        """Each pair, if no two right sides are alike here and every claim holds."""
        sides: dict[str, int] = {}
        for place, pair in enumerate(self.item.pairs):
            side = self.evidence.plain(pair.right)
            above = sides.setdefault(side, place)
            if above != place:
                if not self.evidence.book.is_reference:
                    return OPEN
                alike = f"the right side is {side!r} here too, as in pair {above + 1}"
                raise ItemError(("pairs", place, "right"), f"{alike}; let them differ")
        claims = [pair.claim for pair in self.item.pairs if pair.claim]
        if any(self.evidence.outcome(claim).verdict != "holds" for claim in claims):
            return OPEN
        return Key(right=tuple(range(self.num_places)))

    def unclear(self) -> Iterator[Found]:
        """Pairs that nothing backs."""
        for place, pair in enumerate(self.item.pairs):
            printed = (one.text for one in prose.expressions(pair.right))
            if not pair.claim and all(map(_LABEL.match, printed)):
                lack = "nothing backs this pair; print a value in right: or name its claim:"
                yield ("pairs", place), lack
        yield from super().unclear()

    def answers(self, folio: Folio) -> tuple[Answer, ...]:
        """The pairs as written; equal right sides count as the first of them."""
        sides = [plain(folio.line(one.right)) for one in self.item.pairs]
        return tuple(
            Answer(
                folio.line(pair.left), folio.line(pair.why), "right", position=place,
                backing=(claim_behind(pair.claim, folio),) if pair.claim else (),
                beside=folio.line(pair.right), mate=sides.index(sides[place]),
            )
            for place, pair in enumerate(self.item.pairs)
        )  # fmt: skip

    def form(self, folio: Folio, explained: tuple[Answer, ...]) -> Form:
        """The left sides as written, and the right sides to choose from, each once."""
        sides: dict[str, int] = {}
        for place in self.shown_order():
            text = plain(folio.line(self.item.pairs[place].right))
            sides[text] = min(place, sides.get(text, place))
        lefts = (Asked(unopened(one.text), one.position) for one in explained)
        rights = (Asked(Markup.escape(text), place) for text, place in sides.items())
        return Form(tuple(lefts), tuple(rights))

"""What decides an item's key, and whether a claim's sentence follows: rules, and their digests.

In: an item or a claim, and the book. Out: the claims and expressions that decide each of its parts,
and the digest that a blind reading is kept with. Wording is not part of an item's digest, which
follows the rules, what is asked of them and the author's `revision`; a claim's sentences are part
of its digest, since a reading is about rule and sentence together. No measured number is part of
either, so that a rerun asks for no new reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from generator.content import prose
from generator.content.book import Book
from generator.content.claim import Claim
from generator.content.listed_code import source
from generator.content.quiz import (
    Choice,
    Complete,
    FaultyLine,
    Item,
    Match,
    Number,
    Order,
    Predict,
    Several,
)
from generator.content.yaml_source import Path
from generator.items.keys import asked_for


class Part(NamedTuple):
    """A part of an item that can be right or wrong, and what decides it.

    Attributes:
        path: where it stands, from the item.
        claims: the claims whose verdicts decide it.
        expressions: the expressions whose values decide it.
        asks: what is asked of them, such as a verdict; a change of it is a change of the rule.
    """

    path: Path
    claims: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    asks: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether anything decides it."""
        return bool(self.claims or self.expressions)


def parts(item: Item) -> Iterator[Part]:
    """The parts of an item, in the order written, each with what decides it."""
    return _BY_KIND[item.kind](item)


def _of_options(item: Choice | Several) -> Iterator[Part]:
    for place, option in enumerate(item.options):
        gives = (option.slip.gives,) if option.slip else ()
        asks: str = option.right_if.verdict if option.right_if else "never right"
        yield Part(("options", place), option.deciders, gives, asks)


def _of_pairs(item: Match) -> Iterator[Part]:
    for place, pair in enumerate(item.pairs):
        printed = tuple(one.text for one in prose.expressions(pair.right))
        yield Part(("pairs", place), (pair.claim,) if pair.claim else (), printed)


def _of_pieces(item: Order) -> Iterator[Part]:
    for place, piece in enumerate(item.pieces):
        recorded = f"{item.run}: {piece.recorded}" if item.run and piece.recorded else None
        rule = recorded or piece.by
        asks = "descending" if item.descending else "ascending"
        yield Part(("pieces", place), (), (rule,) if rule else (), asks)


def _of_lines(item: FaultyLine) -> Iterator[Part]:
    both = tuple(f"{one.path} {one.object or ''}" for one in (item.wrong, item.right))
    for place, line in enumerate(item.lines):
        yield Part(("lines", place), (), both, line.code.strip())


def _of_value(item: Number | Predict | Complete) -> Iterator[Part]:
    path, expression = asked_for(item)
    yield Part(path, (), (expression,))
    for place, slip in enumerate(item.slips):
        yield Part(("slips", place), (), (slip.gives,))


_BY_KIND: dict[str, Callable[[Any], Iterator[Part]]] = {
    "choice": _of_options,
    "several": _of_options,
    "match": _of_pairs,
    "order": _of_pieces,
    "faulty_line": _of_lines,
    "number": _of_value,
    "predict": _of_value,
    "complete": _of_value,
}


def claims_of(item: Item) -> tuple[str, ...]:
    """The claims that decide any part of an item, each once."""
    return tuple(dict.fromkeys(claim for part in parts(item) for claim in part.claims))


def item_digest(item: Item, book: Book) -> str:
    """The digest of what decides an item: 12 hexadecimal digits."""
    covered = [item.id, item.kind, str(item.revision)]
    for part in parts(item):
        rules = (_rule(book.claims[name]) for name in part.claims if name in book.claims)
        covered += [part.asks, *rules, *map(_spaced, part.expressions)]
    if isinstance(item, FaultyLine):
        covered += [source(book.root, one.path, one.object) for one in (item.wrong, item.right)]
    return _digest(covered)


def claim_digest(written: Claim) -> str:
    """The digest of a claim's rule and its sentences, as they stand in its file."""
    cases = (one.model_dump_json(exclude_defaults=True) for one in written.cases)
    showed = written.showed.model_dump_json(exclude_none=True) if written.showed else ""
    said = (written.says, written.formula or "", showed, *cases)
    return _digest([written.kind, _rule(written), *map(_worded, said)])


def _rule(claim: Claim) -> str:
    """A claim's rule on its run, as text: without its id and its sentences.

    What an author leaves open is left out, so that a new field of claims changes no digest.
    """
    sides = f"{_spaced(claim.observed)} {claim.relation} {_spaced(claim.predicted)}"
    tolerance = claim.tolerance.model_dump_json(exclude_none=True) if claim.tolerance else ""
    domain = (
        claim.domain.model_dump_json(exclude_none=True, exclude={"because"}) if claim.domain else ""
    )
    runs = f"run={claim.run} other={claim.other}"
    return f"{sides} {claim.quantifier} {tolerance} {domain} {runs}"


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _worded(text: str) -> str:
    """A sentence without what changes no meaning: its line breaks, the capital of a first rank."""
    return _spaced(text).replace("{{ Rank(", "{{ rank(")


def _digest(covered: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(covered).encode()).hexdigest()[:12]

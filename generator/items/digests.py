"""Which question an answer belongs to: the digest that a browser keeps with a reader's answers.

In: an item and the evidence. Out: its digest. It covers what decides whether an answer still means
the same: the item's id and kind, what is right, among how many, and the author's `revision`.
Wording, feedback and hints are not covered, and neither is any measured number, so that neither
rewriting a text nor a rerun voids an answer.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from generator.content.quiz import Choice, FaultyLine, Item, Match, Order, Several
from generator.items.keys import asked_for, key_of

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


def digest_of(item: Item, evidence: Evidence) -> str:
    """The digest of an item, 12 hexadecimal digits.

    Options, pieces, pairs and lines count by their positions as written, since that is how answers
    are kept. A number counts by its expression, and never by its value.
    """
    return evidence.once("digest", item, lambda: _digest(item, evidence))


def _digest(item: Item, evidence: Evidence) -> str:
    covered = [item.id, item.kind, str(item.revision), _key(item, evidence)]
    return hashlib.sha256("\n".join(covered).encode()).hexdigest()[:12]


def _key(item: Item, evidence: Evidence) -> str:
    """What is right, and among how many."""
    if isinstance(item, Choice | Several | Order | Match | FaultyLine):
        return f"{key_of(item, evidence).right} of {_num_positions(item)}"
    return "".join(asked_for(item)[1].split())


def _num_positions(item: Choice | Several | Order | Match | FaultyLine) -> int:
    if isinstance(item, Choice | Several):
        return len(item.options)
    if isinstance(item, Order):
        return len(item.pieces)
    return len(item.pairs if isinstance(item, Match) else item.lines)

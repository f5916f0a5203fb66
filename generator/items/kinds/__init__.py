"""The kinds of questions: one class each, with its key, its parts, its answers and its form."""

import hashlib
from typing import Any

from generator.content.quiz import Item
from generator.items.kinds.arranged import Pairs, Pieces
from generator.items.kinds.kind import Kind
from generator.items.kinds.picked import Lines, OneOption, SeveralOptions
from generator.items.kinds.typed import Prediction, TypedNumber
from generator.values.evaluation import Evidence

_KINDS: dict[str, type[Kind[Any]]] = {
    "choice": OneOption,
    "several": SeveralOptions,
    "number": TypedNumber,
    "order": Pieces,
    "match": Pairs,
    "predict": Prediction,
    "faulty_line": Lines,
}


def kind_of(item: Item, evidence: Evidence) -> Kind[Any]:
    """An item on this book's runs; worked out once."""
    return evidence.once("kind", item, lambda: _KINDS[item.kind](item, evidence))


def digest_of(item: Item, evidence: Evidence) -> str:
    """The digest that a browser keeps with a reader's answers, 12 hexadecimal digits.

    It covers what decides whether an answer still means the same: the item's id and kind, what is
    right, among how many, and the author's `revision`. It covers no wording, feedback or hint, and
    no measured number, so that neither rewriting a text nor a rerun voids an answer.
    """
    kind = item.kept_as or item.kind
    covered = [item.id, kind, str(item.revision), kind_of(item, evidence).covered]
    return hashlib.sha256("\n".join(covered).encode()).hexdigest()[:12]

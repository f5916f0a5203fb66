"""Which topics a claim belongs to: those whose pages and questions name it, and its file's own.

In: a book's documents. Out: topic ids by claim, in the order in which the book has its topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from generator.content.book import Book
from generator.content.claim import ClaimFile
from generator.content.documents import Document

CLAIM_KEYS = frozenset({"claims", "claim", "law", "refuted_by", "decides"})  # ids of claims
_QUOTED = re.compile(
    r"\b(?:showed|verdict|holds|predicted|observed)\(\s*['\"]([a-z0-9-]+(?:@[a-z_]+\.[a-z0-9_]+)?)['\"]\s*\)"
)
_TOPIC = re.compile(r"(?:^|/)topics/([^/]+)/[^/]+$")


def topics_by_claim(book: Book) -> dict[str, tuple[str, ...]]:
    """The topics of every claim of a book; a claim that none of them names has none."""
    named = {pair for document in book.documents for pair in _named(document, book)}
    order = [topic.id for topic in book.topics]
    return {
        claim: tuple(topic for topic in order if (topic, claim) in named) for claim in book.claims
    }


def _named(document: Document[Any], book: Book) -> Iterator[tuple[str, str]]:
    """Pairs of topic and claim that a file brings together."""
    if isinstance(document.model, ClaimFile):
        for topic in document.model.topics:
            for claim in document.model.claims:
                yield from ((topic, name) for name in book.laws.of_law[claim.id])
        return
    place = _TOPIC.search(document.source.file)
    if place is None:
        return
    for one in document.fields:
        if one.name in CLAIM_KEYS:
            yield place[1], one.text
        for claim in _QUOTED.findall(one.text):
            yield place[1], claim

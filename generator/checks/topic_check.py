"""One topic, checked alone: its lessons, its items and the claims that they name, in a second.

In: the folder of content and a topic's id. Out: a book that holds nothing else that is judged, and
the mistakes in it, as `check` of the whole book tells them. That one also finds what only printed
pages and the whole book show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from generator.checks import content_checks
from generator.content import book as books
from generator.content.book import Book, Topic
from generator.content.claim import ClaimFile
from generator.content.documents import Document
from generator.content.errors import ContentError, ContentErrors, nearest, sort_errors
from generator.content.shelf import is_stale
from generator.evidence.claim_topics import topics_by_claim
from generator.evidence.evaluation import Evidence


class UnknownTopicError(ValueError):
    """No folder of content/topics has this name."""


def load(content: Path, machine: str | None, topic: str) -> Book:
    """The book, in which only the traces that a topic draws upon are asked whether they are stale.

    Raises:
        ContentErrors: as `book.load`.
        UnknownTopicError: there is no such topic.
    """
    book = books.load(content, machine, lambda _: False)
    known = [one.id for one in book.topics]
    if topic not in known:
        raise UnknownTopicError(
            f"no topic {topic!r}{nearest(topic, known)}; there are: {', '.join(known)}"
        )
    used = _experiments(book, topic)
    return replace(
        book,
        traces={
            name: replace(shown, is_stale=name in used and is_stale(shown.trace))
            for name, shown in book.traces.items()
        },
    )


def claims_of(book: Book, topic: str) -> list[str]:
    """The claims that belong to a topic, in the order in which the book has them."""
    return [claim for claim, of in topics_by_claim(book).items() if topic in of]


def check(book: Book, topic: str) -> tuple[Book, Evidence]:
    """What a topic alone may state: the book narrowed to its claims and traces, and its evidence.

    Raises:
        ContentErrors: every mistake in the topic's files and claims.
    """
    evidence = Evidence(book)
    found = next(one for one in book.topics if one.id == topic)
    names = claims_of(book, topic)
    mistakes = sort_errors(_mistakes(evidence, found, names))
    if mistakes:
        raise ContentErrors(mistakes)
    used = _experiments(book, topic)
    narrowed = replace(
        book,
        claims={name: book.claims[name] for name in names},
        traces={name: shown for name, shown in book.traces.items() if name in used},
    )
    return narrowed, evidence


def _mistakes(evidence: Evidence, topic: Topic, names: list[str]) -> Iterator[ContentError]:
    folder = f"/topics/{topic.id}/"
    claims = [one for one in evidence.book.documents if isinstance(one.model, ClaimFile)]
    for document in evidence.book.documents:
        if folder in f"/{document.source.file}":
            yield from content_checks.of_document(evidence, document)
    laws = {name.partition("@")[0] for name in names}
    for document in claims:
        yield from content_checks.of_texts(evidence, _narrowed(document, laws))
    if any(evidence.outcome(name).error for name in names):  # rare: then each at its place
        for document in claims:
            yield from content_checks.of_document(evidence, document)


def _narrowed(document: Document[Any], laws: set[str]) -> Document[Any]:
    """A file of claims with the texts of these claims alone, each where it stands."""
    narrowed = replace(document)
    ids = [claim.id for claim in document.model.claims]
    kept = [
        one
        for one in document.fields
        if one.path[0] == "claims" and isinstance(one.path[1], int) and ids[one.path[1]] in laws
    ]
    vars(narrowed)["fields"] = tuple(kept)
    return narrowed


def _experiments(book: Book, topic: str) -> set[str]:
    """The experiments that a topic's files and claims name."""
    folder, named = f"/topics/{topic}/", set(claims_of(book, topic))
    texts = [one.text for document in book.documents if folder in f"/{document.source.file}"
             for one in document.fields]  # fmt: skip
    for name in named:
        claim = book.claims[name]
        texts += [name, claim.predicted, claim.observed]
    words = set(re.findall(r"\b([a-z][a-z0-9_]*)\.", "\n".join(texts)))
    return words & set(book.traces)

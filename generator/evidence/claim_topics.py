"""Which lessons use a claim: those that name it or ask about it, in the order of the book."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from generator.content.book import Book, Topic
from generator.content.documents import Document
from generator.content.lesson import Mode
from generator.content.quiz import QuizFile
from generator.content.yaml_source import Path
from generator.evidence.filters import asked_of_claims

LessonPlace = tuple[str, Mode]
_TOPIC = re.compile(r"(?:^|/)topics/([^/]+)/([^/]+)\.yml$")


@lru_cache(maxsize=4096)
def claims_named(document: Document[Any]) -> tuple[tuple[Path, str], ...]:
    """Every claim that a file names, with the place of the field that names it."""
    return tuple(
        (one.path, claim)
        for one in document.fields
        for claim in (
            *([one.text] if one.mark in ("claim", "case") else []),
            *(claim for _, claim in asked_of_claims(one.text)),
        )
    )


def lessons_by_claim(book: Book) -> dict[str, tuple[LessonPlace, ...]]:
    """The lessons that use each claim, as topic and mode; Recall only where no other asks it."""
    found: dict[str, set[LessonPlace]] = {}
    for document in book.documents:
        place = _TOPIC.search(document.source.file)
        topic = next((one for one in book.topics if place and one.id == place[1]), None)
        if place is None or topic is None:
            continue
        for path, claim in claims_named(document):
            modes = (
                _asking(topic, document.model.items[int(path[1])].id)
                if isinstance(document.model, QuizFile)
                else [mode for mode in topic.lessons if mode == place[2]]
            )
            found.setdefault(claim, set()).update((topic.id, mode) for mode in modes)
    order = [(topic.id, mode) for topic in book.topics for mode in topic.items_by_mode]
    return {name: tuple(one for one in order if one in uses) for name, uses in found.items()}


def _asking(topic: Topic, item: str) -> list[Mode]:
    """The modes that ask an item."""
    modes = [mode for mode, items in topic.items_by_mode.items() if item in items]
    return [mode for mode in modes if mode != "recall"] or modes

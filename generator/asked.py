"""Which items a lesson asks, and in what place: as a commitment, as a check, on a Recall page.

In: a topic and one of its lessons. Out: its items in the order in which they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel

from generator.book import Topic
from generator.lesson import ChallengeFile, LessonFile, RecallFile, TryFile
from generator.quiz import Item

COMMITMENTS = frozenset({"commit", "guess", "question"})  # asked before the text tells
_PLACES = COMMITMENTS | {"quiz", "checks", "item"}


class Asked(NamedTuple):
    """An item and the field of the lesson that names it; `recall` where a page asks them all."""

    field: str
    item: Item


def asked(topic: Topic, lesson: LessonFile) -> list[Asked]:
    """The items that a lesson asks; an id that no item has is said elsewhere."""
    if isinstance(lesson, RecallFile):
        found = [("recall", name) for name in topic.items if name not in lesson.leave_out]
    else:
        found = list(_named(lesson, ""))
    return [Asked(field, topic.items[name]) for field, name in found if name in topic.items]


def committed(topic: Topic, lesson: LessonFile) -> list[Item]:
    """The items that a reader answers before the lesson tells, and is then shown the run."""
    return [
        one.item
        for one in asked(topic, lesson)
        if one.field in COMMITMENTS
        or (one.field == "item" and isinstance(lesson, TryFile))
        or (isinstance(lesson, ChallengeFile) and one.item.kind == "predict")
    ]


def _named(thing: object, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(thing, BaseModel):
        for name in type(thing).model_fields:
            yield from _named(getattr(thing, name), name)
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from _named(one, field)
    elif isinstance(thing, str) and field in _PLACES:
        yield field, thing

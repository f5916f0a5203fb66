"""Which items a lesson asks, and in what place: as a commitment, as a check, on a Recall page.

In: a lesson and its topic's items. Out: those that it asks, in the order in which it asks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from generator.content.lesson import LessonFile, RecallFile
from generator.content.quiz import Item

_PLACES = frozenset({"commit", "guess", "question", "quiz", "checks", "item"})


class Asked(NamedTuple):
    """An item and the field of the lesson that names it; `recall` where a page asks them all."""

    field: str
    item: Item


def items_asked_by(
    lesson: LessonFile, items: Mapping[str, Item], named: Sequence[tuple[str, str]] | None = None
) -> list[Asked]:
    """The items that a lesson asks; an id that no item has is said elsewhere.

    Args:
        lesson: whose.
        items: of its topic.
        named: what `named_in` found in it, where that is known.
    """
    if isinstance(lesson, RecallFile):
        found = [("recall", name) for name in items if name not in lesson.leave_out]
    else:
        found = list(named_in(lesson) if named is None else named)
    return [Asked(field, items[name]) for field, name in found if name in items]


def named_in(thing: object, field: str = "") -> Iterator[tuple[str, str]]:
    """What stands in the fields that name items, each with its field."""
    if isinstance(thing, BaseModel):
        for name in type(thing).model_fields:
            yield from named_in(getattr(thing, name), name)
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from named_in(one, field)
    elif isinstance(thing, str) and field in _PLACES:
        yield field, thing

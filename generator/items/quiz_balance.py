"""What shows only over all items of a topic: a key that is too often the longest, or in one place.

In: the items of a topic as readers see them. Out: findings by item. A rule fires where guessing by
it would succeed so often that chance gives it less than `UNLIKELY`.

Options are shuffled by an item's id, so their place says nothing; only two options stand as
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from generator.content.quiz import Choice
from generator.items.item_seen import Finding, Seen

UNLIKELY = 0.01


class Sign(NamedTuple):
    """Something by which a reader could guess without knowing."""

    rule: str
    applies: Callable[[Seen], bool]
    points_at_key: Callable[[Seen], bool]
    excess: Callable[[Seen], int]
    said: str
    fix: str


def findings(topic: str, items: Iterable[Seen]) -> dict[str, list[Finding]]:
    """The findings by item id: one on the item to begin with, one on each that accepts the rule."""
    choices = [one for one in items if isinstance(one.item, Choice) and not one.key.is_open]
    found: dict[str, list[Finding]] = {}
    for sign in SIGNS:
        able = [one for one in choices if sign.applies(one)]
        counted = [one for one in able if sign.rule not in one.item.accepts]
        marked = [one for one in counted if sign.points_at_key(one)]
        if _is_skewed(counted, marked):
            marked.sort(key=lambda one: (-sign.excess(one), one.item.id))
            message = _message(topic, sign, counted, marked)
            _add(found, marked[0], Finding(sign.rule, ("id",), message))
        meant = [one for one in able if sign.points_at_key(one)]
        if _is_skewed(able, meant):
            for one in meant:
                if sign.rule in one.item.accepts:
                    _add(found, one, Finding(sign.rule, ("id",), sign.said))
    return found


def _add(found: dict[str, list[Finding]], one: Seen, finding: Finding) -> None:
    found.setdefault(one.item.id, []).append(finding)


def _is_skewed(counted: Sequence[Seen], marked: Sequence[Seen]) -> bool:
    return at_least([1 / len(one.options) for one in counted], len(marked)) < UNLIKELY


def at_least(chances: Sequence[float], num: int) -> float:
    """The probability that at least `num` of independent events with these chances happen."""
    exactly = [1.0]
    for chance in chances:
        missed = [one * (1 - chance) for one in exactly] + [0.0]
        happened = [0.0] + [one * chance for one in exactly]
        exactly = [left + right for left, right in zip(missed, happened, strict=True)]
    return sum(exactly[num:])


def _message(topic: str, sign: Sign, counted: Sequence[Seen], marked: Sequence[Seen]) -> str:
    expected = sum(1 / len(one.options) for one in counted)
    names = ", ".join(one.item.id for one in marked)
    return (
        f"in {topic} {sign.said} in {len(marked)} of {len(counted)} items, where chance gives "
        f"about {expected:.0f}; {sign.fix} in some of: {names}"
    )


def _lengths(one: Seen) -> tuple[int, int]:
    """The length of the right option, and of the longest wrong one."""
    (right,) = one.key.right
    return len(one.options[right]), max(len(one.options[place]) for place in one.wrong)


def _longer(one: Seen) -> int:
    key, other = _lengths(one)
    return key - other


SIGNS = (
    Sign(
        "key_often_longest",
        lambda one: len(one.options) > 2,
        lambda one: _longer(one) > 0,
        _longer,
        "the right option is the longest",
        "shorten it, or write out what a wrong one claims,",
    ),
    *(
        Sign(
            "key_position",
            lambda one: len(one.options) == 2,
            lambda one, place=place: one.key.right == (place,),  # type: ignore[misc]
            lambda _: 0,
            f"the {word} of two options is right",
            "exchange the two, or ask so that the other is right,",
        )
        for place, word in enumerate(("first", "second"))
    ),
)

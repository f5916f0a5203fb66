"""What readers' answers say about each item: too hard, telling nothing, with options nobody picks.

In: a book's items and the exports of several readers. Out: a `Report`. Only the first attempt of a
reader at an item counts as knowing; later ones have seen an explanation. Answers to its variants
are about other runs and are left out. Answers to an older
version of an item are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation

from generator.content.quiz import Choice, FaultyLine, Item, Match, Order, Several
from generator.items.readers import Attempt, Export, Record

MIN_READERS = 10  # fewer say nothing about discrimination
Share = tuple[int, int]  # so many of so many


@dataclass(frozen=True)
class ItemReport:
    """One item, over all readers who answered the version that the book holds now.

    Attributes:
        num_readers: how many answered it.
        right: how many were right at their first attempt, of those who were told.
        discrimination: the correlation of being right here with the share of other items right
            (item-rest, point-biserial); None where it cannot be said.
        why_unknown: why it cannot be said.
        never_chosen: positions, as written, of options that nobody chose in any attempt.
        by_confidence: right of how many, by confidence (0, 1, 2), at first attempts.
        older: right of how many at first attempts to older versions.
    """

    item: Item
    num_readers: int
    right: Share
    discrimination: float | None
    why_unknown: str
    never_chosen: tuple[int, ...]
    by_confidence: Mapping[int, Share]
    older: Share


@dataclass(frozen=True)
class Report:
    """All items.

    Attributes:
        items: those that somebody answered, now or in an older version, in the book's order.
        never_answered: the ids of the others.
        num_unknown: records of items that this book does not have.
        num_unfit: attempts that no reader of the item could have made.
        by_confidence: right of how many, by confidence, over all items at first attempts.
    """

    items: tuple[ItemReport, ...]
    never_answered: tuple[str, ...]
    num_unknown: int
    num_unfit: int
    by_confidence: Mapping[int, Share]


@dataclass(frozen=True)
class _Reader:
    """One reader's fitting attempts, by item: at the version of now, and at older ones."""

    now: Mapping[str, Sequence[Attempt]]
    older: Mapping[str, Sequence[Attempt]]
    num_unknown: int
    num_unfit: int


def report(
    items: Mapping[str, Item], digests: Mapping[str, str], exports: Sequence[Export]
) -> Report:
    """Report on every item of a book.

    Args:
        items: the book's items by id, in its order.
        digests: the version of each that pages show now.
        exports: one a reader.
    """
    readers = [_sorted_out(items, digests, export) for export in exports]
    found = tuple(
        _of_item(item, readers, items)
        for name, item in items.items()
        if any(name in one.now or name in one.older for one in readers)
    )
    answered = {one.item.id for one in found}
    return Report(
        items=found,
        never_answered=tuple(name for name in items if name not in answered),
        num_unknown=sum(one.num_unknown for one in readers),
        num_unfit=sum(one.num_unfit for one in readers),
        by_confidence=_by_confidence(
            one for reader in readers for one in _firsts(reader.now, items)
        ),
    )


def _sorted_out(items: Mapping[str, Item], digests: Mapping[str, str], export: Export) -> _Reader:
    now: dict[str, list[Attempt]] = {}
    older: dict[str, list[Attempt]] = {}
    num_unknown = num_unfit = 0
    for name, record in export.items.items():
        if name not in items:
            num_unknown += 1
            continue
        is_now = record.digest == digests[name]
        own = [one for one in record.attempts if not one.variant]
        kept = [one for one in own if not is_now or fits(items[name], one)]
        num_unfit += len(own) - len(kept)
        if kept and _begins(record, kept):
            (now if is_now else older)[name] = kept
    return _Reader(now, older, num_unknown, num_unfit)


def _begins(record: Record, kept: Sequence[Attempt]) -> bool:
    """Whether the first attempt is there: without it nothing says what the reader knew."""
    return record.attempts[0] is kept[0]


def fits(item: Item, attempt: Attempt) -> bool:
    """Whether an attempt can be an answer to an item."""
    answer = attempt.answer
    if attempt.gave_up or answer is None:
        return attempt.gave_up and answer is None
    if isinstance(item, Choice | FaultyLine):
        num = len(item.options if isinstance(item, Choice) else item.lines)
        return isinstance(answer, int) and 0 <= answer < num
    if isinstance(item, Several):
        return _is_positions(answer, len(item.options)) and len(set(_listed(answer))) > 0
    if isinstance(item, Order):
        return sorted(_listed(answer)) == list(range(len(item.pieces)))
    if isinstance(item, Match):
        return _is_positions(answer, len(item.pairs)) and len(_listed(answer)) == len(item.pairs)
    return not isinstance(answer, list)


def _listed(answer: object) -> list[int]:
    return answer if isinstance(answer, list) else []


def _is_positions(answer: object, num: int) -> bool:
    return isinstance(answer, list) and all(one < num for one in answer)


def _of_item(item: Item, readers: Sequence[_Reader], items: Mapping[str, Item]) -> ItemReport:
    now = [one.now[item.id] for one in readers if item.id in one.now]
    firsts = [attempts[0] for attempts in now]
    discrimination, why = _discrimination(item, readers, items)
    return ItemReport(
        item=item,
        num_readers=len(now),
        right=_share(firsts),
        discrimination=discrimination,
        why_unknown=why,
        never_chosen=_never_chosen(item, [one for attempts in now for one in attempts]),
        by_confidence=_by_confidence(iter(firsts)),
        older=_share([one.older[item.id][0] for one in readers if item.id in one.older]),
    )


def _share(firsts: Sequence[Attempt]) -> Share:
    graded = [one for one in firsts if one.is_right is not None]
    return sum(one.is_right is True for one in graded), len(graded)


def _firsts(attempts: Mapping[str, Sequence[Attempt]], items: Mapping[str, Item]) -> list[Attempt]:
    """The first attempts at items that are graded; a prediction is not."""
    return [tried[0] for name, tried in attempts.items() if items[name].kind != "predict"]


def _by_confidence(firsts: Iterator[Attempt]) -> dict[int, Share]:
    graded: dict[int, list[Attempt]] = {}
    for one in firsts:
        if one.confidence is not None and one.is_right is not None:
            graded.setdefault(one.confidence, []).append(one)
    return {level: _share(graded[level]) for level in sorted(graded)}


def _discrimination(
    item: Item, readers: Sequence[_Reader], items: Mapping[str, Item]
) -> tuple[float | None, str]:
    """The correlation of being right on an item with the share right of the others."""
    here, rest = [], []
    for reader in readers:
        first = reader.now.get(item.id, ())[:1]
        others = {name: tried for name, tried in reader.now.items() if name != item.id}
        right, num = _share(_firsts(others, items))
        if first and first[0].is_right is not None and num:
            here.append(float(first[0].is_right))
            rest.append(right / num)
    if len(here) < MIN_READERS:
        return None, "too few readers"
    try:
        return correlation(here, rest), ""
    except StatisticsError:
        return None, "all alike"


def _never_chosen(item: Item, attempts: Sequence[Attempt]) -> tuple[int, ...]:
    if not isinstance(item, Choice | Several | FaultyLine) or not attempts:
        return ()
    num = len(item.lines if isinstance(item, FaultyLine) else item.options)
    chosen = {
        place
        for one in attempts
        for place in (one.answer if isinstance(one.answer, list) else [one.answer])
    }
    return tuple(place for place in range(num) if place not in chosen)

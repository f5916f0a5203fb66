"""What meets each misconception: a prediction, a run, and a question asked again later.

In: the evidence, with its book. Out: what each misconception still lacks, one line each. A reader
who believes it must have committed to it before the text tells, must have seen the run that refutes
it, and must be asked again when days have passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from generator.content.book import Book
from generator.content.item_places import committed, items_asked_by
from generator.content.quiz import Item, believed

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


WANTED = (
    "a prediction (an item that names it, asked before a page tells)",
    "a run (refuted_by: a claim that holds)",
    "a delayed question (an item that names it, on a Recall page)",
)


class Met(NamedTuple):
    """What meets a misconception.

    Attributes:
        predictions: the items that name it and are asked before the text tells.
        run: the claim that refutes it and holds on runs.
        delayed: the items that name it and come back on a Recall page.
    """

    predictions: tuple[str, ...]
    run: str | None
    delayed: tuple[str, ...]


def coverage(evidence: Evidence) -> dict[str, Met]:
    """What meets each misconception of a book, by its id."""
    before: list[Item] = []
    later: list[Item] = []
    for topic in evidence.book.topics:
        for lesson in topic.lessons.values():
            before += committed(lesson.model, topic.items, lesson.named)
            found = items_asked_by(lesson.model, topic.items, lesson.named)
            later += [one.item for one in found if one.field == "recall"]
    first, again = _by_misconception(before), _by_misconception(later)
    return {
        name: Met(first.get(name, ()), _run(evidence, name), again.get(name, ()))
        for name in evidence.book.misconceptions
    }


def _by_misconception(items: Iterable[Item]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for item in items:
        for name in believed(item):
            found.setdefault(name, {})[item.id] = None
    return {name: tuple(ids) for name, ids in found.items()}


def _run(evidence: Evidence, misconception: str) -> str | None:
    """The claim that refutes it, with a run behind it; what another machine shows is let be."""
    claim = evidence.book.misconceptions[misconception].refuted_by
    if claim is None:
        return None
    outcome = evidence.outcome(claim)
    holds = outcome.verdict == "holds" or not outcome.on_reference
    return claim if holds and outcome.runs else None


def lacks(evidence: Evidence) -> list[str]:
    """What misconceptions, and items, still lack; one line each."""
    found = []
    for name, met in coverage(evidence).items():
        missing = [wanted for wanted, is_met in zip(WANTED, met, strict=True) if not is_met]
        if missing:
            found.append(f"misconception {name} lacks {', '.join(missing)}")
    return found + [f"item {name} is asked on no page" for name in _unasked(evidence.book)]


def _unasked(book: Book) -> list[str]:
    found = []
    for topic in book.topics:
        on_pages = {name for names in topic.items_by_mode.values() for name in names}
        found += [name for name in topic.items if name not in on_pages]
    return found

"""A question in its other cases (`for:`): Recall asks the concept again, and not the same numbers.

In: an item and the evidence. Out: the other cases that have one right answer on the runs shown, and
what is wrong with those that an author wrote. Each has a key of its own, worked out from its runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from generator.content import prose
from generator.content.documents import fields_of
from generator.content.errors import ContentError
from generator.content.quiz import Choice, Item, Order, Several
from generator.evidence.evaluation import Evidence
from generator.evidence.value import AbsentError, ExpressionError
from generator.items import evidence_checks
from generator.items.kinds import key_of


def answerable(item: Item, evidence: Evidence) -> Iterator[tuple[int, Item]]:
    """The other cases that have one right answer here, which the explanations fit; each numbered.

    On another machine than the reference, a case may have come out otherwise: then it is not asked.
    """
    others: tuple[Item, ...] = item.others
    for number, one in enumerate(others, 1):
        if not any(_misleading(item, one, evidence)):
            yield number, _with_own_evidence(item, number, one, evidence)


def _with_own_evidence(item: Item, number: int, other: Item, evidence: Evidence) -> Item:
    """A case that shows no evidence on runs of the first case alone."""
    first, own = (set(item.cases[n].values()) for n in (0, number))
    shown = [one for one in other.claims if not (first - own) & {*evidence.outcome(one).runs}]
    return other.model_copy(update={"claims": shown})


def mistakes(item: Item, other: Item, evidence: Evidence) -> list[str]:
    """Everything for which an item is no question in one of its other cases."""
    found = list(unread(other, evidence))
    if not found:  # two slips may come to the same in one case, and be told apart in the first
        wrong = evidence_checks.mistakes(other, evidence)
        found = [message for path, message in wrong if path[0] != "slips"]
    if not found and evidence.book.is_reference:
        found = list(_misleading(item, other, evidence))
    return found


def unread(other: Item, evidence: Evidence) -> Iterator[str]:
    """What its texts read and no run recorded, and claims that nobody wrote."""
    for one in fields_of(other):
        texts = [found.text for found in prose.expressions(one.text)]
        if one.mark == "expression":
            texts = [one.text]
        if one.mark in ("line", "prose", "expression"):
            problems = ((text, evidence.unprintable(evidence.evaluate(text))) for text in texts)
            yield from (f"{text}: {problem}" for text, problem in problems if problem)
        elif one.mark == "claim" and one.text not in evidence.book.claims:
            yield evidence.book.laws.lacks(one.text)


def _misleading(item: Item, other: Item, evidence: Evidence) -> Iterator[str]:
    """Why a case is not asked, as the runs came out."""
    try:
        key, seen = key_of(other, evidence), _seen(other, evidence)
        own = key_of(item, evidence)
        if key.is_open:
            yield "no single answer is right in this case on the runs shown"
        elif isinstance(item, Choice | Several | Order) and own.right not in ((), key.right):
            yield "another answer is right in this case; write it as an item of its own"
        elif isinstance(item, Choice | Several) and len(set(seen[1:])) < len(seen) - 1:
            yield "two options read alike in this case; choose runs that differ"
        elif seen == _seen(item, evidence):
            yield "this case reads like the first; choose runs that differ"
    except (ContentError, ExpressionError, AbsentError) as error:
        yield str(error)


def _seen(item: Item, evidence: Evidence) -> tuple[str, ...]:
    """What a reader sees of a question: its text, and what there is to choose from."""
    texts = [one.text for one in getattr(item, "options", ())]
    texts += [f"{one.left} {one.right}" for one in getattr(item, "pairs", ())]
    texts += [one.text for one in getattr(item, "pieces", ())]
    texts += [one.title for one in getattr(item, "rows", ())]
    return tuple(evidence.plain(text) for text in (item.stem, *texts))

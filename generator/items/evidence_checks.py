"""Items checked against the runs: whether each has its key, its evidence, and numbers told apart.

In: an item and the evidence. Out: what is wrong, each at a path that starts at the item. What an
expression or a name lacks is said where it is written, by `checks/`, and not again here.
"""

from __future__ import annotations

from collections.abc import Iterator

from generator.content.errors import ContentError
from generator.content.quiz import Item
from generator.evidence import units
from generator.evidence.evaluation import Evidence
from generator.evidence.value import ExpressionError
from generator.evidence.verdicts import WORDS
from generator.items.kinds import kind_of
from generator.items.kinds.kind import Found, ItemError


def mistakes(item: Item, evidence: Evidence) -> Iterator[Found]:
    """Everything in an item that the runs do not bear out."""
    for path, claim in _claimed(item):
        problem = unheld(evidence, claim)
        if problem:
            yield path, problem
    try:
        yield from kind_of(item, evidence).unclear()
    except ItemError as error:
        yield error.path, error.message
    except (ContentError, ExpressionError, units.UnitError):
        return  # said where it is written


def unheld(evidence: Evidence, claim: str) -> str | None:
    """Why a claim backs nothing, though it is shown as evidence where the book was written."""
    if claim not in evidence.book.claims:
        return None
    outcome = evidence.outcome(claim)
    if outcome.verdict == "holds" or not outcome.on_reference:
        return None
    runs = filter(None, map(evidence.book.run, outcome.runs))
    if any(run.is_surprise for run in runs):
        return None  # pages show it in red, and a strict build refuses the run itself
    return f"rests on claim {claim!r}: {WORDS[outcome.verdict]} ({outcome.explanation})"


def _claimed(item: Item) -> Iterator[Found]:
    """The claims that an item shows as evidence, beside those that decide its key."""
    for number, claim in enumerate(item.claims):
        yield ("claims", number), claim
    for number, option in enumerate(getattr(item, "options", ())):
        if option.refuted_by:
            yield ("options", number, "refuted_by"), option.refuted_by
    for number, pair in enumerate(getattr(item, "pairs", ())):
        if pair.claim:
            yield ("pairs", number, "claim"), pair.claim

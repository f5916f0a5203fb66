"""Claims checked against the runs: whether their expressions can be judged and their texts printed.

In: a file of `content/claims/` and the evidence. Out: what is wrong, where it is written. What is
wrong on several runs of a claim is told once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.content import names
from generator.content.book import Book
from generator.content.claim import Claim, ClaimFile
from generator.content.documents import Document, Field
from generator.content.errors import ContentError
from generator.content.laws import short_names
from generator.evidence.filters import Showed

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


DECLARED = re.compile(r"\bexpected_(?:status|death)\b")


def mistakes(evidence: Evidence, document: Document[ClaimFile]) -> Iterator[ContentError]:
    """Claims that cannot be judged."""
    for position, written in enumerate(document.model.claims):
        yield from _declared(document, position, written)
        reported: set[str] = set()
        for claim in _judged(evidence.book, written):
            for at, problem in _problems(evidence, claim):
                if at not in reported:
                    reported.add(at)
                    yield document.error(("claims", position, *at.split(".")), problem)


def _declared(
    document: Document[ClaimFile], position: int, written: Claim
) -> Iterator[ContentError]:
    """Rules that lean on the outcome which an experiment declares for its own run."""
    for side, text in (("predicted", written.predicted), ("observed", written.observed)):
        found = DECLARED.search(text)
        if found:
            yield document.error(
                ("claims", position, side),
                f"{found[0]} is what the experiment declares, and proves nothing of its own run; "
                "predict the outcome in words, and observe ended(run): "
                "predicted: \"'out of memory in forward'\"",
                offset=found.start(),
            )


def _judged(book: Book, written: Claim) -> list[Claim]:
    """The claims, one for each run, that come of one as it is written."""
    return [book.claims[name] for name in book.laws.of_law[written.id]]


def _problems(evidence: Evidence, claim: Claim) -> Iterator[tuple[str, str]]:
    outcome = evidence.outcome(claim.id)
    if outcome.error:
        where = f"on {claim.run}: " if claim.run else ""
        yield outcome.at, f"{where}{outcome.error}"


def problem(
    evidence: Evidence, document: Document[ClaimFile], one: Field, expression: str
) -> str | None:
    """Why an expression cannot stand in a text of a claim, on any of the claim's runs."""
    if one.path[0] != "claims":
        return evidence.unprintable(evidence.evaluate(expression))
    assert isinstance(one.path[1], int)
    written = document.model.claims[one.path[1]]
    for claim in _judged(evidence.book, written):
        if not _is_about(written, one, claim):
            continue
        if expression == "called" and claim.cases:
            if claim.cases[0].called is None:
                return f"for: has no called: for {claim.run}"
            continue
        found = evidence.evaluate(names.of_expression(expression, short_names(claim)))
        if isinstance(found.result, Showed):
            return "a claim's own sentences cannot quote a claim's sentence"
        lack = evidence.unprintable(found)
        if lack:
            return lack
    return None


def _is_about(written: Claim, one: Field, claim: Claim) -> bool:
    """Whether a text is one of a claim's texts on a run: a case's own text is about its run."""
    if one.path[2] != "for":
        return True
    assert isinstance(one.path[3], int)
    return written.cases[one.path[3]].run in (None, claim.run)

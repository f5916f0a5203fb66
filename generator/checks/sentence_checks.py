"""Claims whose sentence says more than their rule.

In: a file of `content/claims/` and the evidence. Out: sentences that speak of every rank or step
while the rule reads one of them, and sentences that give a reason which no claim shows. An author
who means it says why: `accepts: {quantifier: one call serves the whole group}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.content.claim import Claim, ClaimFile
from generator.content.documents import Document
from generator.content.errors import ContentError

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

UNIVERSAL = re.compile(
    r"\b(every|all|each|never|only|nothing else|always)\b(?![-_])", re.IGNORECASE
)
BECAUSE = re.compile(r"\bbecause\b|\bsince\b(?! the last)|, for (?:it|they|there)\b", re.IGNORECASE)
QUANTIFYING = re.compile(r"\b(largest|smallest|total|mean|count|num_distinct|each)\b")
_NOT_PROSE = re.compile(r"`[^`]*`|\{\{.*?\}\}")
_ONE_RANK = re.compile(r"\.ranks\[\d+\]")
_ONE_OF_MANY = re.compile(r"\.(?:step_losses|epochs|samples|stages|prediction)\[\d+\]")
Path = tuple[str | int, ...]


def mistakes(evidence: Evidence, document: Document[ClaimFile]) -> Iterator[ContentError]:
    """Sentences that say more than their rule, and exceptions that nothing needs."""
    for position, written in enumerate(document.model.claims):
        place: Path = ("claims", position)
        used = set()
        for path, says, claim in sentences(evidence, written):
            for rule, offset, message in _findings(evidence, written, claim, says):
                used.add(rule)
                if rule not in written.accepts:
                    yield document.error((*place, *path), message, offset=offset)
        if written.cause is not None:
            problem = _no_cause(evidence, written)
            if problem:
                yield document.error((*place, "cause"), problem)
        for rule in written.accepts.keys() - used:
            yield document.error(
                (*place, "accepts", rule), f"nothing here breaks {rule!r}; delete this exception"
            )


def sentences(evidence: Evidence, written: Claim) -> Iterator[tuple[Path, str, Claim]]:
    """The sentences of a claim, each with a claim of one run that it stands for."""
    judged = [evidence.book.claims[name] for name in evidence.book.laws.of_law[written.id]]
    if not judged:
        return
    own = {case.run: (number, case.says) for number, case in enumerate(written.cases) if case.says}
    shared = next((one for one in judged if one.run not in own), None)
    if shared is not None:
        yield ("says",), written.says, shared
    for claim in judged:
        if claim.run in own:
            number, says = own[claim.run]
            assert says is not None
            yield ("for", number, "says"), says, claim


def _findings(
    evidence: Evidence, written: Claim, claim: Claim, says: str
) -> Iterator[tuple[str, int, str]]:
    prose = _NOT_PROSE.sub(lambda found: " " * len(found[0]), says)
    word = UNIVERSAL.search(prose)
    if word and not has_quantifier(written):
        field = _one_of_many(evidence, claim)
        if field:
            message = (
                f"says {word[0]!r}, and its rule reads {field} alone; observe a list, with "
                "quantifier: each, or say what the rule says, or say why: accepts: {quantifier: …}"
            )
            yield "quantifier", word.start(), message
    reason = BECAUSE.search(prose)
    if reason and written.cause is None:
        message = (
            "gives a reason; name the claim that shows it, cause: …, or leave the reason out, "
            "or say why: accepts: {because: …}"
        )
        yield "because", reason.start(), message


def has_quantifier(claim: Claim) -> bool:
    """Whether a rule looks at each element of a list, or at all of them together."""
    return claim.quantifier is not None or bool(QUANTIFYING.search(claim.observed))


def _one_of_many(evidence: Evidence, claim: Claim) -> str | None:
    """A field that a rule observes on one rank of several, or at one step or epoch; or None."""
    observed = evidence.evaluate(claim.observed, claim.names)
    for field in observed.measured:
        experiment, name, _ = field.split(".", 2)
        run = evidence.book.run(f"{experiment}.{name}")
        if run is not None and run.world_size > 1 and _ONE_RANK.search(field):
            return field
        if _ONE_OF_MANY.search(field):
            return field
    return None


def _no_cause(evidence: Evidence, written: Claim) -> str | None:
    """Why a claim cannot be the reason of this one, or None."""
    assert written.cause is not None
    if written.cause.partition("@")[0] == written.id:
        return "a claim is no reason of its own"
    if written.cause not in evidence.book.claims:
        return evidence.book.laws.lacks(written.cause)
    return None

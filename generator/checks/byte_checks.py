"""Laws on bytes say in their sentence which bytes they count.

In: a file of `content/claims/` and the evidence. Out: laws that read bytes of one kind and do not
name it. Tensor bytes are the sizes of storages, and so is a payload, which is what a collective was
passed; they are the same on every machine. Allocator bytes are what the system gave out, rounded to
blocks or pages, so that a law that equates them says by how many blocks they may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.checks.sentence_checks import sentences
from generator.content.claim import Claim, ClaimFile
from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.evidence.verdicts import sides

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

TENSOR, PAYLOAD, ALLOCATOR = "tensor bytes", "payload", "allocator bytes"
# What a field counts; each kind with the words that name it.
KINDS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"\.memory\.(?:peak_bytes|at_peak|largest|phases)"), (TENSOR,)),
    (
        re.compile(r"kernel_peak_bytes|\.allocator\.|\.(?:held|requested)_bytes"),
        (ALLOCATOR,),
    ),
    (
        re.compile(
            r"\.collectives\[\d+\]\.(?:transfers\[\d+\]\.)?bytes"
            r"|_(?:all_reduce|all_gather|reduce_scatter|send)_bytes|\.communicated_bytes"
        ),
        (PAYLOAD, TENSOR),
    ),
)


def mistakes(evidence: Evidence, document: Document[ClaimFile]) -> Iterator[ContentError]:
    """Laws that do not say which bytes they count, and exact laws on allocator bytes."""
    if not evidence.book.is_reference:  # where a field is missing, what a rule reads is unknown
        return
    laws = [one for one in enumerate(document.model.claims) if one[1].kind == "law"]
    for position, written in laws:
        for path, says, claim in sentences(evidence, written):
            place = ("claims", position, *path)
            for words in _missing(evidence, claim, says):
                yield document.error(place, f"counts {words[0]}, and its sentence does not say so")
        problem = _exact(evidence, written)
        if problem:
            yield document.error(("claims", position, "relation"), problem)


def _missing(evidence: Evidence, claim: Claim, says: str) -> Iterator[tuple[str, ...]]:
    """The kinds of bytes that a rule reads, and that its sentence does not name."""
    if claim.observed.startswith("ended("):
        return  # an outcome; the budget explains it or does not
    read = [field for side in sides(evidence, claim) for field in side.measured]
    for pattern, words in KINDS:
        is_read = any(pattern.search(field) for field in read)
        if is_read and not any(word in says.casefold() for word in words):
            yield words


def _exact(evidence: Evidence, written: Claim) -> str | None:
    """Why a law cannot equate bytes that the allocator rounds, or None."""
    if written.relation != "equals" or (written.tolerance and written.tolerance.blocks):
        return None
    pattern = KINDS[1][0]
    for name in evidence.book.laws.of_law[written.id]:
        claim = evidence.book.claims[name]
        if not claim.observed.startswith("ended("):
            fields = sides(evidence, claim)[1].measured
            if any(pattern.search(field) for field in fields):
                return (
                    "equates allocator bytes, which are rounded to blocks; tolerance: {blocks: 1}"
                )
    return None

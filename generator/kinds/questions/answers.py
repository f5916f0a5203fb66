"""Answers explained, as they stand below a question: what each says, why, and what shows it.

In: claims, misconceptions and slips that an item names. Out: each `ExplainedAnswer` with its
`Backing`. The script in the page reads the key from here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from markupsafe import Markup

from proofbook.generator.printing.folio import Folio


@dataclass(frozen=True)
class Backing:
    """A claim behind an answer, as a link inside the site."""

    says: Markup  # empty where the evidence against the belief follows below the answers
    href: str
    verdict: str = ""  # in words unless it holds: the sentence alone would say the contrary
    belief: Markup | None = None  # that it refutes, where it is no evidence about the answer itself


class Reach(NamedTuple):
    """Number and tolerance, or words, that a typed answer is compared with."""

    number: float | None  # in base units; None for words and shapes
    within: float = 0.0  # how far off an answer may be, in base units
    words: str | None = None  # a shape or a word to type as it is; None for a number


@dataclass(frozen=True)
class ExplainedAnswer:
    """One answer, explained."""

    text: Markup  # what it says, with values that open
    why: Markup  # why it is right or wrong
    verdict: str  # right, wrong, or open where this machine's runs leave it open
    word: str = ""  # the verdict in words, if any
    position: int = 0  # its place among what the author wrote; stored answers name it
    backing: tuple[Backing, ...] = ()  # what shows it
    beside: Markup | None = None  # the value that a piece is sorted by, or the right side of a pair
    reach: Reach | None = None  # what a typed answer is compared with


def deduplicated(
    explained: Sequence[ExplainedAnswer], more: Sequence[Backing]
) -> tuple[tuple[ExplainedAnswer, ...], tuple[Backing, ...]]:
    """(answers without the evidence that several share, evidence below them: shared and `more`).

    An answer keeps the belief that shared evidence refutes. Of `more`, the evidence of the whole
    question, what stands with an answer is left out.
    """
    behind = [backing for answer in explained for backing in answer.backing]
    times = Counter(backing.href for backing in behind)
    repeated = (backing for backing in behind if times[backing.href] > 1)
    below = {backing.href: replace(backing, belief=None) for backing in repeated}

    def kept(answer: ExplainedAnswer) -> tuple[Backing, ...]:
        return tuple(
            replace(backing, says=Markup()) if backing.href in below else backing
            for backing in answer.backing
            if backing.href not in below or backing.belief
        )

    left = tuple(replace(answer, backing=kept(answer)) for answer in explained)
    return left, (*below.values(), *(backing for backing in more if backing.href not in times))


def claim_backing(name: str, folio: Folio) -> Backing:
    """A `Backing` by a claim: sentence, link, verdict unless `holds`; noted in the `folio`."""
    outcome = folio.judged(name)
    folio.linked_claims.add(name)
    folio.runs.update(outcome.runs)
    verdict = "" if outcome.verdict == "holds" else outcome.verdict.replace("_", " ")
    says = folio.in_link.line(folio.book.claims[name].says)
    return Backing(says, folio.claim_place(name), verdict=verdict)


def refutation_of(misconception: str | None, folio: Folio) -> tuple[Backing, ...]:
    """(`Backing`,) by the claim that refutes a misconception, with the belief; () if unknown."""
    refuted = folio.book.misconceptions.get(misconception or "")
    if refuted is None:
        return ()
    belief = folio.line(refuted.belief)
    return (replace(claim_backing(refuted.refuted_by, folio), belief=belief),)

"""Whether the verdict on a sentence that people read agrees with the claim that tests it.

In: a file of retractions and the outcomes of its claims. Out: what each claim shows of its
sentence, and a located error where an author's verdict says otherwise. Only the reference machine
decides; pages of another machine mention that its runs differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from generator.content.claim import Retraction, SentenceVerdict
from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.evidence.verdicts import UNDECIDED, Outcome

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

Shown = Literal["refuted", "confirmed", "untested"]
BORNE_OUT_BY: dict[SentenceVerdict, tuple[Shown, ...]] = {
    "false": ("refuted",),
    "too_general": ("refuted",),  # the run is a case in which the sentence fails
    "true": ("confirmed",),
    "depends": ("refuted", "confirmed"),
}


def shown(sentence: Retraction, outcome: Outcome) -> Shown:
    """What the runs of one machine show of a sentence."""
    if outcome.verdict in UNDECIDED:
        return "untested"
    if sentence.confirmed_if is not None:
        return "confirmed" if outcome.verdict == sentence.confirmed_if else "refuted"
    return "refuted" if outcome.verdict == "holds" else "untested"


def bears_out(sentence: Retraction, outcome: Outcome) -> bool:
    """Whether the outcome of its claim agrees with the author's verdict on a sentence."""
    return shown(sentence, outcome) in BORNE_OUT_BY[sentence.verdict]


def _is_broken_law(outcome: Outcome) -> bool:
    """Whether a law stopped holding: it is red on its pages, and a strict build refuses it."""
    return outcome.claim.kind == "law" and outcome.verdict == "does_not_hold"


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Every verdict of a file that its claim does not bear out."""
    for position, one in enumerate(document.model.statements):
        if one.claim not in evidence.book.claims or not evidence.book.is_reference:
            continue
        outcome = evidence.outcome(one.claim)
        if not _is_broken_law(outcome) and not bears_out(one, outcome):
            wanted = " or ".join(BORNE_OUT_BY[one.verdict])
            message = (
                f"{one.verdict} needs a claim by which the sentence is {wanted}; by "
                f"{one.claim} ({outcome.verdict}) it is {shown(one, outcome)}"
            )
            yield document.error(("statements", position, "verdict"), message)

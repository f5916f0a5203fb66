"""Answers explained, as they stand below a question: what each says, why, and what shows it.

In: claims, misconceptions and slips that an item names. Out: `Answer`s and the `Backing` of each.
The script in the page reads the key from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from generator.content.quiz import Slip
from generator.evidence.folio import Folio
from generator.items.typed_number import Reach


@dataclass(frozen=True)
class Backing:
    """A claim behind an answer, as a link inside the site.

    `verdict` is the claim's in words, unless it holds: the claim's sentence alone would then say
    the contrary of what the runs showed. `belief` is the misconception that it refutes, where it is
    evidence about that and not about the answer itself. `says` is empty where the evidence against
    the belief follows below the answers.
    """

    says: Markup
    href: str
    verdict: str = ""
    belief: Markup | None = None


@dataclass(frozen=True)
class Answer:
    """One answer, explained.

    Attributes:
        text: what it says, with values that open.
        why: why it is right or wrong.
        verdict: right, wrong, or open where this machine's runs leave it open.
        word: the verdict in words, if any.
        position: its place among what the author wrote; stored answers name it.
        backing: what shows it.
        beside: the value that a piece is sorted by, or the right side of a pair.
        mate: match: the right side as the form names it; equal ones are one.
        reach: what a typed answer is compared with.
    """

    text: Markup
    why: Markup
    verdict: str
    word: str = ""
    position: int = 0
    backing: tuple[Backing, ...] = ()
    beside: Markup | None = None
    mate: int | None = None
    reach: Reach | None = None


def told_once(
    explained: Sequence[Answer], more: Sequence[Backing]
) -> tuple[tuple[Answer, ...], tuple[Backing, ...]]:
    """The answers, and the evidence below them, so that no sentence of evidence is repeated.

    What several answers rest on moves below them; `more`, the evidence of the whole question,
    leaves out what stands with an answer.
    """
    beliefs: dict[str, list[Markup | None]] = {}
    by_href: dict[str, Backing] = {}
    for answer in explained:
        for one in answer.backing:
            beliefs.setdefault(one.href, []).append(one.belief)
            by_href[one.href] = one
    shared = {href for href, found in beliefs.items() if len(found) > 1}
    moved = {href for href in shared if len(set(beliefs[href])) == 1}  # with the belief, if any

    def beside(one: Backing) -> Backing | None:
        """What stays with its answer."""
        if one.href not in shared:
            return one
        if one.href in moved or one.belief is None:
            return None
        return replace(one, says=Markup())

    left = tuple(
        replace(answer, backing=tuple(kept for one in answer.backing if (kept := beside(one))))
        for answer in explained
    )
    below = [
        one if href in moved else replace(one, belief=None)
        for href, one in by_href.items()
        if href in shared
    ]
    return left, (*below, *(one for one in more if one.href not in beliefs))


def claim_behind(name: str, folio: Folio) -> Backing:
    """A claim as evidence; its runs count as used by the page."""
    outcome = folio.outcome(name)
    folio.runs.update(outcome.runs)
    verdict = "" if outcome.verdict == "holds" else str(folio.ui["verdicts"][outcome.verdict])
    says = folio.line(folio.book.claims[name].says)
    return Backing(says, folio.claim_place(name), verdict=verdict)


def against(misconception: str | None, folio: Folio) -> tuple[Backing, ...]:
    """The claim that refutes a misconception, with the belief."""
    found = folio.book.misconceptions.get(misconception or "")
    if found is None:
        return ()
    belief = folio.line(found.belief)
    return (replace(claim_behind(found.refuted_by, folio), belief=belief),)


def slipped(slip: Slip, folio: Folio) -> Markup:
    """What a slip says of itself."""
    says = folio.ui["item"]["slip_because" if slip.why else "slip"]
    why = folio.line(slip.why) if slip.why else ""
    return Markup(escape(says)).format(name=folio.line(slip.name), why=why)

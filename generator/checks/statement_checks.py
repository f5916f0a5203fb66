"""Statements that people read: whether the verdict on each agrees with the claim that tests it.

In: the statements and the outcomes of their claims. Out: what each claim shows of its sentence, and
located errors, where an author's verdict says otherwise or where a short program behind it cannot
stand. Only the reference machine decides; pages of another one mention that its runs differ. A
program is a file of `content/retracted/`, and a run of the experiment `repeats` executed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from generator.content import listed_code
from generator.content.book import Book
from generator.content.claim import Retraction, SentenceVerdict
from generator.content.documents import Document
from generator.content.errors import ContentError, nearest
from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import UNDECIDED, Outcome

EXPERIMENT = "repeats"
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


def path_of(name: str) -> str:
    """The file of a program, from the project's root."""
    return f"content/retracted/{name}.py"


def problem(book: Book, name: str) -> str | None:
    """Why a sentence cannot stand with this program, or None."""
    if listed_code.text(book.root, path_of(name)) is None:
        folder = book.root / "content" / "retracted"
        known = sorted(path.stem for path in folder.glob("*.py"))
        return f"no file {path_of(name)}{nearest(name, known)}"
    run = book.run(f"{EXPERIMENT}.{name}")
    if run is None:
        return (
            f"no run {EXPERIMENT}.{name} executed it; "
            f"run `python -m runners run {EXPERIMENT} --full`"
        )
    if run.settings.get("program") != path_of(name):
        return f"{EXPERIMENT}.{name} executed {run.settings.get('program')}, not this file"
    return None


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Verdicts that their claims do not bear out, and programs that cannot stand."""
    book = evidence.book
    for position, one in enumerate(document.model.statements):
        found = problem(book, one.program) if one.program else None
        if found:
            yield document.error(("statements", position, "program"), found)
        if one.claim not in book.claims or not book.is_reference:
            continue
        outcome = evidence.outcome(one.claim)
        if not _is_broken_law(outcome) and not bears_out(one, outcome):
            wanted = " or ".join(BORNE_OUT_BY[one.verdict])
            message = (
                f"{one.verdict} needs a claim by which the sentence is {wanted}; by "
                f"{one.claim} ({outcome.verdict}) it is {shown(one, outcome)}"
            )
            yield document.error(("statements", position, "verdict"), message)

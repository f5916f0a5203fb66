"""Statements that people read: whether the verdict on each agrees with the claim that tests it.

In: the statements and the outcomes of their claims. Out: what each claim shows of its sentence, and
located errors, where an author's verdict says otherwise or where a short program behind it cannot
stand. Only the reference machine decides; pages of another one mention that its runs differ.
"""

from collections.abc import Iterator
from typing import Any, Literal

from generator.content import listed_code
from generator.content.book import Book
from generator.content.claim import SentenceVerdict, Statement
from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.values.evaluation import Evidence
from generator.values.verdicts import UNDECIDED, Judged

Judgement = Literal["refuted", "confirmed", "untested"]
BORNE_OUT_BY: dict[SentenceVerdict, tuple[Judgement, ...]] = {
    "false": ("refuted",),
    "too_general": ("refuted",),  # the run is a case in which the sentence fails
    "true": ("confirmed",),
    "depends": ("refuted", "confirmed"),
}


def judgement(sentence: Statement, outcome: Judged) -> Judgement:
    """What the runs of one machine show of a sentence."""
    if outcome.verdict in UNDECIDED:
        return "untested"
    if sentence.confirmed_if is not None:
        return "confirmed" if outcome.verdict == sentence.confirmed_if else "refuted"
    return "refuted" if outcome.verdict == "holds" else "untested"


def bears_out(sentence: Statement, outcome: Judged) -> bool:
    """Whether the outcome of its claim agrees with the author's verdict on a sentence."""
    return judgement(sentence, outcome) in BORNE_OUT_BY[sentence.verdict]


def program_path(book: Book, run: str) -> str:
    """The file that a run executed, from the project's root; empty where it executed none."""
    found = book.run(run)
    return str(found.settings.get("program", "")) if found else ""


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Verdicts that their claims do not bear out, and programs that cannot stand."""
    book = evidence.book
    for position, statement in enumerate(document.model.statements):
        file = (
            program_path(book, statement.program)
            if statement.program and book.run(statement.program)
            else None
        )
        problem = None if file is None else listed_code.why_not_listed(book.root, file, None)
        if problem:
            yield document.error(("statements", position, "program"), problem)
        if statement.claim not in book.claims or evidence.reference:
            continue
        outcome = evidence.judged(statement.claim)
        if not outcome.is_broken_law and not bears_out(statement, outcome):
            wanted = " or ".join(BORNE_OUT_BY[statement.verdict])
            message = (
                f"{statement.verdict} needs a claim by which the sentence is {wanted}; by "
                f"{statement.claim} ({outcome.verdict}) it is {judgement(statement, outcome)}"
            )
            yield document.error(("statements", position, "verdict"), message)

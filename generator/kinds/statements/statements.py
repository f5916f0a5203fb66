"""The statements of a book, and whether the runs bear out what it says of each.

In: `content/statements.yml`. Out: `Statements`, and every mistake. The claim of a statement bears
out its verdict on the reference machine.
"""

from collections.abc import Iterator
from typing import Literal

from proofbook.generator.checks.claim_checks import program_path
from proofbook.generator.content import listed_code
from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document
from proofbook.generator.content.reading import Loader
from proofbook.generator.content.topic import HomeFile
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.kinds.statements.words import SentenceVerdict, Statement, StatementFile
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.verdicts import UNDECIDED, Judged


class Statements(dict[str, Statement]):
    """By id; those that the home page names come first."""


def statements(loader: Loader, _: bool) -> Statements:
    """Those that were read."""
    known = loader.parts(StatementFile, "statements")
    first = [name for home in loader.of(HomeFile) for name in home.model.statements]
    return Statements(
        {name: known[name] for name in dict.fromkeys([*first, *known]) if name in known}
    )


def ids(book: Book, _: object) -> Statements:
    """What a list of statements may name."""
    return book.part(Statements)


def programs(book: Book) -> Iterator[str]:
    """Those that show the effect of a statement."""
    runs = (statement.program for statement in book.part(Statements).values())
    yield from (program_path(book, run) for run in runs if run)


Judgement = Literal["refuted", "confirmed", "untested"]
BORNE_OUT_BY: dict[SentenceVerdict, tuple[Judgement, ...]] = {
    "false": ("refuted",),
    "too_general": ("refuted",),  # the run is a case in which the sentence fails
    "true": ("confirmed",),
    "depends": ("refuted", "confirmed"),
}


def judgement(sentence: Statement, outcome: Judged) -> Judgement:
    """A word: refuted if the claim holds, else untested; `confirmed_if` names what confirms."""
    if outcome.verdict in UNDECIDED:
        return "untested"
    if sentence.confirmed_if is not None:
        return "confirmed" if outcome.verdict == sentence.confirmed_if else "refuted"
    return "refuted" if outcome.verdict == "holds" else "untested"


def bears_out(sentence: Statement, outcome: Judged) -> bool:
    """Whether the claim's outcome agrees with the author's verdict on a statement."""
    return judgement(sentence, outcome) in BORNE_OUT_BY[sentence.verdict]


def mistakes(evidence: Evidence, document: Document[StatementFile]) -> Iterator[Mistake]:
    """Statements whose verdict is not borne out, or whose program cannot be listed."""
    for position, statement in enumerate(document.model.statements):
        for key, message in _of_statement(evidence, statement):
            yield ("statements", position, key), message


def _of_statement(evidence: Evidence, statement: Statement) -> Iterator[tuple[str, str]]:
    book = evidence.book
    if statement.program and book.run(statement.program):
        file = program_path(book, statement.program)
        if problem := listed_code.why_not_listed(book.root, file, None):
            yield "program", problem
    if statement.claim not in book.claims or evidence.reference:
        return
    outcome = evidence.judged(statement.claim)
    if not outcome.is_broken_law and not bears_out(statement, outcome):
        wanted = " or ".join(BORNE_OUT_BY[statement.verdict])
        message = (
            f"{statement.verdict} needs a claim by which the sentence is {wanted}; by "
            f"{statement.claim} ({outcome.verdict}) it is {judgement(statement, outcome)}"
        )
        yield "verdict", message

"""Sentences that people read: how each stands, its runs, and a program that repeats it.

The claim of a statement bears out its verdict on the reference machine; what is not borne out is a
mistake.
"""

import re
from collections.abc import Iterator
from typing import Literal

from markupsafe import Markup

from proofbook.generator.checks.claim_checks import program_path
from proofbook.generator.content import listed_code
from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document
from proofbook.generator.content.exhibit import Listing
from proofbook.generator.content.reading import Loader
from proofbook.generator.content.topic import HomeFile
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.kinds.statements.words import SentenceVerdict, Statement, StatementFile
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements import element
from proofbook.generator.pages.elements.programs import ListedProgram, listing
from proofbook.generator.pages.sheets import EVIDENCE, Sheet
from proofbook.generator.pages.views.claims import measured_by, verdict_row
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain
from proofbook.generator.printing.sources import command
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


_SENTENCE_ENDS = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*\[{])")
SHOWN = 2  # sentences of a correction; the rest is closed


JUDGED = (
    "Each is judged in the context of its source. “False” means that we know no conditions under "
    "which it holds. “Too general” means that a run shows a case in which it fails. “Depends on "
    "the implementation” means that libraries differ. “True” means that the run confirms it under "
    "the conditions named. Where no run tests a statement, or where the runs came out otherwise, "
    "the entry says so. Most have a short program that shows the effect on your machine."
)
RANKED = (
    "We ranked these{} by judgement, asking two questions: who reads the statement, and what does "
    "it cost to act on it where it fails, or is read too broadly? Each entry answers both."
)


def sheets(book: Book) -> Iterator[Sheet]:
    """The page of all statements, if there are some."""
    if book.part(Statements):
        title, source = "Common statements, tested", "content/statements.yml"
        about = f"These are statements that people read about {book.home.subject}, in our words."
        yield Sheet("retracted.md", "retracted", title, about, source, under=EVIDENCE)


def retracted(draft: Draft) -> Iterator[element.Element | Markup]:
    """The page of all statements; those that the home page names stand first."""
    folio, first = draft.folio, draft.folio.book.home.statements
    tested = draft.folio.book.part(Statements).values()
    yield draft.opening(f"{draft.sheet.about} {JUDGED}")
    link = Markup('<a class="pb-label" href="#{}">{}</a>')
    links = [link.format(one.id, plain(folio.line(one.said))) for one in tested]
    yield element.Fold(Markup("On this page"), [element.ListOfLines(links)], "pb-contents")
    yield element.narrowing(Markup("Show statements that contain"), ".pb-statement", "statements")
    is_ten = len(first) == 10
    for place, sentence in enumerate(tested):
        if first and not place:
            title = "Ten common statements" if is_ten else "Common statements"
            yield draft.heading(2, title, anchor="ten")
            yield Markup(f"<p>{RANKED}</p>").format(" ten" * is_ten)
        elif first and place == len(first):
            yield draft.heading(2, "More statements", anchor="others")
        yield _statement(sentence, draft)


def _statement(sentence: Statement, draft: Draft) -> element.Made:
    folio, book = draft.folio, draft.folio.book
    claim = verdict_row(sentence.claim, folio)
    first, *others = re.split(r"\n\s*\n", sentence.correction.strip())
    sentences = _SENTENCE_ENDS.split(first)
    more = [" ".join(sentences[SHOWN:]), *others]
    runs = [run for run in map(book.run, claim.outcome.runs) if run]
    path = sentence.program
    program = book.run(path) if path else None
    words: dict[str, element.Content | element.Element | Markup] = {  # all but the evidence
        "said": draft.heading(3, folio.line(sentence.said), anchor=sentence.id, css="pb-sentence"),
        "standings": _standings(sentence, folio),
        "where": folio.line(sentence.where),
        "correction": folio.prose(" ".join(sentences[:SHOWN])),
        "regime": folio.line(sentence.regime),
        "more": folio.prose("\n\n".join(filter(None, more))),
        "stakes": folio.line(sentence.stakes or ""),
    }
    return element.Made(
        "TestedStatement", **words, visible=[*words.values()], claim=claim,
        source=book.references[sentence.source] if sentence.source else None,
        runs=[(name, folio.root + folio.place_of(name)) for name in claim.outcome.runs],
        verb="Simulate" if {run.nature for run in runs} == {"simulated"} else "Measure",
        again=command(claim.outcome.runs, measured_by(claim.outcome, folio), book.reference.name),
        program=_listed(path, folio) if path else None,
        num_ranks=program.world_size if program else 0,
        programs_need=folio.line(book.home.programs_need or ""),
    )  # fmt: skip


def _listed(path: str, folio: Folio) -> ListedProgram:
    """The program of a run, which several sentences may share, and what it printed."""
    sharing = (
        other.uses for other in folio.book.part(Statements).values() if other.program == path
    )
    file = program_path(folio.book, path)
    return listing(Listing(path=file, run=path, title=next(filter(None, sharing))), folio)


def _standings(sentence: Statement, folio: Folio) -> list[Markup]:
    """How the sentence stands on the machine of its runs and those that agree, then elsewhere.

    A machine on which it is untested says nothing beside one on which it is.
    """
    here = folio.judged(sentence.claim)
    own = folio.at_hand.judged(sentence.claim)  # where the reference stands in
    outcomes: list[tuple[str | None, Judged]]
    outcomes = [(measured_by(here, folio), here), (own.machine, own)]
    for other, there in folio.other_outcomes.items():
        if sentence.claim in there.judged_claims:
            outcomes.append((other, there.judged_claims[sentence.claim]))
    judged: dict[str, str] = {}
    for machine, outcome in outcomes:
        if machine:
            judged.setdefault(machine, _standing(sentence, outcome))
    first, *_ = judged.values()
    by_standing: dict[str, list[str]] = {}
    for machine, word in judged.items():
        if word == first or word != "untested":
            by_standing.setdefault(word, []).append(machine)
    is_alike = len(by_standing) == 1
    return [
        element.worded("Standing", verdict=word, machines=() if is_alike else names)
        for word, names in by_standing.items()
    ]


def _standing(sentence: Statement, outcome: Judged) -> str:
    """How a sentence stands after its run: its verdict where the runs of a machine bear it out."""
    if judgement(sentence, outcome) == "untested":
        return "untested"
    return sentence.verdict if bears_out(sentence, outcome) else "otherwise"

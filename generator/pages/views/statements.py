"""Sentences that people read: how each stands, its runs, and a program that repeats it."""

import re

from generator.checks import claim_checks
from generator.content import listed_code
from generator.content.claim import Statement
from generator.pages.view import View
from generator.pages.views.claims import measured_by, verdict_row
from generator.pages.views.listing import highlighted, printed
from generator.printing.folio import Folio
from generator.printing.sources import command
from generator.values.verdicts import Judged

_SENTENCE_ENDS = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*\[{])")
SHOWN = 2  # sentences of a correction; the rest is closed
# A sentence's verdict as it is shown of one machine, and its class.
STANDINGS = {
    "false": ("false", "pb-does-not-hold"),
    "too_general": ("too general", "pb-differs"),
    "depends": ("depends on the implementation", "pb-differs"),
    "true": ("true", "pb-holds"),
    "otherwise": ("the runs of this machine differ", "pb-differs"),
    "untested": ("not tested here", "pb-does-not-apply"),
}


def statement(sentence: Statement, folio: Folio) -> View:
    """`View` of a statement: correction, claim with verdict, standings by machine, program."""
    first, *others = re.split(r"\n\s*\n", sentence.correction.strip())
    sentences = _SENTENCE_ENDS.split(first)
    more = [" ".join(sentences[SHOWN:]), *others]
    row = verdict_row(sentence.claim, folio)
    machine = measured_by(folio.judged(sentence.claim), folio)
    return View(
        why=folio.prose(" ".join(sentences[:SHOWN])),
        more=folio.prose("\n\n".join(filter(None, more))),
        claim=row,
        is_simulated={run.nature for run in map(folio.book.run, row.runs) if run} == {"simulated"},
        again=command(row.runs, machine, folio.book.reference.name),
        standings=_standings(sentence, folio),
        program=_program(sentence.program, folio) if sentence.program else None,
    )


def _standings(sentence: Statement, folio: Folio) -> list[View]:
    """How the sentence stands on the machine of its runs and those that agree, then elsewhere.

    A machine on which it is untested says nothing beside one on which it is.
    """
    here = folio.judged(sentence.claim)
    own = folio.at_hand.judged(sentence.claim)  # where the reference stands in
    others = {
        machine: there.judged_claims[sentence.claim]
        for machine, there in folio.other_outcomes.items()
        if sentence.claim in there.judged_claims
    }
    judged: dict[str, str] = {}
    for machine, outcome in ((measured_by(here, folio), here), (own.machine, own), *others.items()):
        if machine:
            judged.setdefault(machine, _standing(sentence, outcome))
    first, *_ = judged.values()
    by_standing: dict[str, list[str]] = {}
    for machine, word in judged.items():
        if word == first or word != "untested":
            by_standing.setdefault(word, []).append(machine)
    return [
        View(machines=machines, word=STANDINGS[word][0], css=STANDINGS[word][1])
        for word, machines in by_standing.items()
    ]


def _standing(sentence: Statement, outcome: Judged) -> str:
    """How a sentence stands after its run: its verdict where the runs of a machine bear it out."""
    if claim_checks.judgement(sentence, outcome) == "untested":
        return "untested"
    return sentence.verdict if claim_checks.bears_out(sentence, outcome) else "otherwise"


def _program(path: str, folio: Folio) -> View:
    """The program of a run, which several sentences may share, and what it printed."""
    file = claim_checks.program_path(folio.book, path)
    sharing = (other.uses for other in folio.book.statements.values() if other.program == path)
    run = folio.run(path)
    assert run is not None, path  # the checks have looked
    name, start = file.rpartition("/")[2], f"torchrun --nproc-per-node {run.world_size}"
    return View(
        file=listed_code.download_path(file),
        name=name,
        here=f"{start} {name}",
        command=f"{start} {file}",
        code=highlighted(listed_code.listed(folio.book.root, file, None)),
        uses=folio.line(next(filter(None, sharing))),
        **vars(printed(path, folio)),
    )

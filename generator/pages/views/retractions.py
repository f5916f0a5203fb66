"""Sentences that people read: how each stands, its runs, and a program that repeats it."""

from __future__ import annotations

import re

from generator.checks import statement_checks
from generator.content import listed_code
from generator.content.claim import Retraction
from generator.evidence.folio import Folio
from generator.evidence.sources import command
from generator.pages.shown import Shown
from generator.pages.views.claims import STANDINGS, standing, verdict_row
from generator.pages.views.listing import highlighted, raised
from generator.pages.views.proof import measured_by

_SENTENCE_ENDS = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*\[{])")
SHOWN = 2  # sentences of a correction; the rest is closed


def retraction(one: Retraction, folio: Folio) -> Shown:
    """A sentence of the book, judged on its runs."""
    why, more = _in_short(one.correction)
    row, machine = verdict_row(one.claim, folio), measured_by(folio.outcome(one.claim), folio)
    return Shown(
        why=folio.prose(why),
        more=folio.prose(more),
        claim=row,
        again=command(row.runs, machine, folio.book.reference.name),
        standings=_standings(one, folio),
        program=_program(one, one.program, folio) if one.program else None,
    )


def _in_short(correction: str) -> tuple[str, str]:
    """The first sentences of a correction, and what follows them."""
    first, *others = re.split(r"\n\s*\n", correction.strip())
    sentences = _SENTENCE_ENDS.split(first)
    rest = [" ".join(sentences[SHOWN:]), *others]
    return " ".join(sentences[:SHOWN]), "\n\n".join(filter(None, rest))


def _standings(one: Retraction, folio: Folio) -> tuple[Shown, ...]:
    """How the sentence stands on the machine of its runs and those that agree, then elsewhere.

    A machine on which it is untested says nothing beside one on which it is.
    """
    here = folio.outcome(one.claim)
    judged = {measured_by(here, folio): standing(one, here)}
    own = folio.outcomes[one.claim]  # by the book's machine, also where the reference stands in
    if own.machine:
        judged.setdefault(own.machine, standing(one, own))
    for machine, there in folio.other_outcomes.items():
        if one.claim in there.outcomes:
            judged.setdefault(machine, standing(one, there.outcomes[one.claim]))
    first, *_ = judged.values()
    by_standing: dict[str, list[str]] = {}
    for machine, word in judged.items():
        if word == first or word != "untested":
            by_standing.setdefault(word, []).append(machine)
    return tuple(
        Shown(
            machines=machines,
            word=word,
            css=STANDINGS[word],
            differs=word != first and "untested" not in (word, first),
        )
        for word, machines in by_standing.items()
    )


def _program(one: Retraction, path: str, folio: Folio) -> Shown:
    file = statement_checks.path_of(folio.book, path)
    sharing = [other for other in folio.book.retractions.values() if other.program == path]
    first, *_ = sharing
    uses = next(other.uses for other in sharing if other.uses)  # the checks have looked
    run, shown = folio.run(path), folio.book.holder(path)
    assert run is not None, path  # the checks have looked
    assert shown is not None
    code = listed_code.listed(folio.book.root, file, None)
    said = [*run.printed, *([raised(run.error)] if run.error else [])]
    saved = file.rpartition("/")[2]
    start = f"torchrun --nproc-per-node {run.world_size}"
    return Shown(
        file=listed_code.file_of(file),
        name=saved,
        here=f"{start} {saved}",
        command=f"{start} {file}",
        code=highlighted(code),
        run=path,
        status=folio.ui["statuses"][run.status],
        printed="\n".join(said),
        machine=shown.machine.name,
        uses=folio.line(uses),
        first=first.id if first.id != one.id else None,
    )

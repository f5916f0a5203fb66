"""Sentences that people read: how each stands, its runs, and a program that repeats it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from generator.checks import repeats
from generator.content import listed_code
from generator.content.claim import Reference, Retraction
from generator.evidence.folio import Folio
from generator.pages import sifting
from generator.pages.views.claims import Standing, VerdictRow, standing, verdict_row
from generator.pages.views.highlighting import highlighted
from generator.pages.views.proof import measured_by


@dataclass(frozen=True)
class OnMachine:
    """How a sentence stands on one machine."""

    machine: str
    place: str
    standing: Standing
    differs: bool


@dataclass(frozen=True)
class ProgramOnPage:
    """The program that repeats what refutes or confirms a sentence."""

    path: str
    command: str
    code: Markup
    run: str
    status: str
    printed: str
    machine: str
    first: str | None  # the sentence beside which the same program stands already


@dataclass(frozen=True)
class RetractionOnPage:
    """A sentence with all that is known of it."""

    id: str
    said: Markup
    where: Markup | None
    source: Reference | None
    correction: Markup
    claim: VerdictRow
    marks: str
    standings: tuple[OnMachine, ...]
    program: ProgramOnPage | None


def retractions(topics: Mapping[str, tuple[str, ...]], folio: Folio) -> list[RetractionOnPage]:
    """Every sentence of the book."""
    first: dict[str, str] = {}
    for one in folio.book.retractions.values():
        if one.program:
            first.setdefault(one.program, one.id)
    return [_on_page(one, topics, first, folio) for one in folio.book.retractions.values()]


def _on_page(
    one: Retraction,
    topics: Mapping[str, tuple[str, ...]],
    first: Mapping[str, str],
    folio: Folio,
) -> RetractionOnPage:
    standings = tuple(_standings(one, folio))
    judged = [(stands.place, stands.standing.word) for stands in standings]
    kind = folio.book.claims[one.claim].kind
    return RetractionOnPage(
        id=one.id,
        said=folio.line(one.said),
        where=folio.line(one.where) if one.where else None,
        source=folio.book.references[one.source] if one.source else None,
        correction=folio.prose(one.correction),
        claim=verdict_row(one.claim, folio),
        marks=sifting.marks(
            topics.get(one.claim, ()), kind, judged, differs=any(s.differs for s in standings)
        ),
        standings=standings,
        program=_program(one, one.program, first, folio) if one.program else None,
    )


def _standings(one: Retraction, folio: Folio) -> Iterator[OnMachine]:
    """How the sentence stands on the machine shown, then on the others that tested it."""
    here = folio.outcomes[one.claim]
    places = {machine: place for place, machine in enumerate(folio.book.machines)}
    holder = measured_by(here, folio)
    first = standing(one, here)
    yield OnMachine(holder, sifting.machine_mark(places.get(holder, 0)), first, differs=False)
    for machine, there in folio.other_outcomes.items():
        if one.claim in there.outcomes:
            stands = standing(one, there.outcomes[one.claim])
            place = sifting.machine_mark(places[machine])
            yield OnMachine(machine, place, stands, differs=_parts(first, stands))


def _parts(first: Standing, other: Standing) -> bool:
    return first.word != other.word and "untested" not in (first.word, other.word)


def _program(one: Retraction, name: str, first: Mapping[str, str], folio: Folio) -> ProgramOnPage:
    path = repeats.path_of(name)
    run = folio.run(f"{repeats.EXPERIMENT}.{name}")
    assert run is not None, name  # `repeats.problem` has looked
    shown = folio.book.traces[repeats.EXPERIMENT]
    code = listed_code.source(folio.book.root, path, None)
    said = [*run.printed, *([run.error.message] if run.error else [])]
    return ProgramOnPage(
        path=path,
        command=f"torchrun --nproc-per-node {run.world_size} {path}",
        code=highlighted(code),
        run=f"{repeats.EXPERIMENT}.{name}",
        status=folio.ui["statuses"][run.status],
        printed="\n".join(said),
        machine=shown.machine.name,
        first=first[name] if first[name] != one.id else None,
    )

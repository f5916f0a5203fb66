"""The same claims on other machines: what each machine that is not shown says of them.

In: a book, with every machine's traces, and the verdicts on the machine it shows. Out: for each
other machine its evidence, and its verdict on every claim whose runs it has all measured itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from generator.content.book import Book
from generator.content.claim import Verdict
from generator.content.shelf import Measured, on_page
from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import Outcome
from runners.traces.machine_records import Machine

_SILENT: frozenset[Verdict] = frozenset({"no_evidence", "too_few_samples"})


@dataclass(frozen=True)
class OtherOutcomes:
    """What one other machine says.

    Attributes:
        machine: the machine.
        evidence: over its own traces.
        outcomes: its verdicts, by claim.
    """

    machine: Machine
    evidence: Evidence
    outcomes: dict[str, Outcome]


def parts(here: Outcome, there: Outcome) -> bool:
    """Whether two machines say something else of a claim, where both have something to say."""
    return here.verdict != there.verdict and _SILENT.isdisjoint({here.verdict, there.verdict})


def other_outcomes(book: Book, outcomes: Mapping[str, Outcome]) -> dict[str, OtherOutcomes]:
    """Every other machine's verdicts, by its name; a machine without any is left out."""
    found = (_on(one, book, outcomes) for one in _others(book))
    return {one.machine.name: one for one in found if one.outcomes}


def _others(book: Book) -> Iterator[Measured]:
    return (one for one in book.machines.values() if one.machine.name != book.machine.name)


def _on(measured: Measured, book: Book, outcomes: Mapping[str, Outcome]) -> OtherOutcomes:
    own = {
        name: on_page(name, measured, book.machines[book.reference.name])
        for name, shown in book.traces.items()
        if name in measured.traces and shown.trace is not measured.traces[name]
    }
    there = replace(book, traces={**book.traces, **own}, machine=measured.machine)
    evidence = Evidence(there)
    judged = {
        name: evidence.outcome(name)
        for name, outcome in outcomes.items()
        if outcome.runs and all(run.partition(".")[0] in own for run in outcome.runs)
    }
    return OtherOutcomes(measured.machine, evidence, judged)

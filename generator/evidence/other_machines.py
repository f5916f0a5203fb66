"""The same claims on other machines: what each machine that is not shown says of them.

In: a book, with every machine's traces, and the verdicts on the machine it shows. Out: for each
other machine its evidence, and its verdict on every claim whose runs it has all measured itself.
A time is not judged on a machine where more ranks shared a core than on the machine shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from generator.content.book import Book
from generator.content.shelf import Measured, on_page
from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import UNDECIDED, Outcome

SHARED_CORES = "more ranks share a core, so these times say nothing about devices"


@dataclass(frozen=True)
class OtherOutcomes:
    """What one other machine says.

    Attributes:
        evidence: over its own traces.
        outcomes: its verdicts, by claim.
    """

    evidence: Evidence
    outcomes: dict[str, Outcome]


def parts(here: Outcome, there: Outcome) -> bool:
    """Whether two machines decide a claim otherwise; one that skipped its runs decides nothing."""
    return here.verdict != there.verdict and UNDECIDED.isdisjoint({here.verdict, there.verdict})


def other_outcomes(book: Book, outcomes: Mapping[str, Outcome]) -> dict[str, OtherOutcomes]:
    """Every other machine's verdicts, by its name; a machine without any is left out."""
    others = (one for name, one in book.machines.items() if name != book.machine.name)
    found = (_on(one, book, outcomes) for one in others)
    return {one.evidence.book.machine.name: one for one in found if one.outcomes}


def _on(measured: Measured, book: Book, outcomes: Mapping[str, Outcome]) -> OtherOutcomes:
    reference = book.machines[book.reference.name]
    own = {
        name: found
        for name, trace in measured.traces.items()
        if book.traces[name].trace is not trace  # which is shown, in the place of another
        and (found := on_page(name, [measured], reference))
    }
    evidence = Evidence(replace(book, traces={**book.traces, **own}, machine=measured.machine))
    judged = {
        name: _of_devices(evidence.outcome(name), outcome, book)
        for name, outcome in outcomes.items()
        if outcome.runs
        and outcome.machine != measured.machine.name
        and all(run.partition(".")[0] in own for run in outcome.runs)
        and any(map(evidence.book.run, outcome.runs))
    }
    return OtherOutcomes(evidence, judged)


def _of_devices(there: Outcome, here: Outcome, book: Book) -> Outcome:
    """A verdict on another machine, not judged where more ranks share a core there."""
    cores = [book.machines[one.machine].machine.num_cores for one in (there, here) if one.machine]
    is_as_crowded = _is_crowded(here) and cores[0] >= cores[-1]
    if there.verdict in UNDECIDED or is_as_crowded or not _is_crowded(there):
        return there
    return replace(there, verdict="does_not_apply", explanation=SHARED_CORES)


def _is_crowded(outcome: Outcome) -> bool:
    """Whether a verdict rests on a time that ranks took while they shared cores."""
    return any(side.is_crowded for side in (outcome.predicted, outcome.observed) if side)

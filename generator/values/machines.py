"""Machines: which one a topic shows, and what the others say of the same claims.

A topic shows the machine at hand if it has measured what the topic names, else the reference; each
number of that opens to what the machine at hand has measured of the same. A run that was skipped,
or that is about no machine, does not decide it: a figure or a table shows the reference machine's,
and says so. Each other machine gives its verdict on every claim whose runs it has all measured
itself. A time is not judged on a machine where more ranks shared a core or an accelerator than on
the machine shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document
from proofbook.generator.content.shelf import MachineFolder, measure_command, standing
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.filters import calls_of_claims
from proofbook.generator.values.value import Value
from proofbook.generator.values.verdicts import TIMED, UNDECIDED, Judged
from proofbook.runners.core.trace.records import Run

SHARED = "here more ranks share {} than on {}, so these times are not compared"


@dataclass(frozen=True)
class OtherOutcomes:
    """Another machine's evidence and verdicts."""

    evidence: Evidence  # over its own traces
    judged_claims: dict[str, Judged]  # its verdicts, by claim


def disagree(here: Judged, there: Judged) -> bool:
    """Whether two machines decided a claim, and differently."""
    return here.verdict != there.verdict and UNDECIDED.isdisjoint({here.verdict, there.verdict})


def other_outcomes(book: Book, outcomes: Mapping[str, Judged]) -> dict[str, OtherOutcomes]:
    """Every other machine's verdicts, by its name; a machine without any is left out."""
    others = {name: _on(folder, book, outcomes) for name, folder in book.machines.items()
              if name != book.machine.name}  # fmt: skip
    return {name: other for name, other in others.items() if other.judged_claims}


def _on(measured: MachineFolder, book: Book, outcomes: Mapping[str, Judged]) -> OtherOutcomes:
    reference = book.machines[book.reference.name]
    own = {
        name: trace
        for name, trace in standing([measured], reference).items()
        if not (name in book.traces and book.traces[name].trace is trace.trace)  # shown already
    }
    evidence = Evidence(replace(book, traces={**book.traces, **own}, machine=measured.machine))
    judged = {
        name: _of_devices(evidence.judged(name), outcome, book, evidence.book)
        for name, outcome in outcomes.items()
        if outcome.runs
        and outcome.machine != measured.machine.name
        and all(run.partition(".")[0] in own for run in outcome.runs)
        and any(map(evidence.book.run, outcome.runs))
    }
    return OtherOutcomes(evidence, judged)


def _of_devices(there: Judged, here: Judged, book: Book, its: Book) -> Judged:
    """A verdict on another machine, not judged where more ranks share a core or device there."""
    if there.verdict in UNDECIDED or not _is_crowded(there):
        return there
    num, place = _places(there, its)
    is_about_turns = here.claim.relation in TIMED  # of which is faster where cores are shared
    if _is_crowded(here) and (is_about_turns or num >= _places(here, book)[0]):
        return there
    explanation = SHARED.format(place, here.machine or book.machine.name)
    return replace(there, verdict="does_not_apply", explanation=explanation)


def _places(outcome: Judged, book: Book) -> tuple[int, str]:
    """How many cores or accelerators the ranks of a verdict share, and what one of them is."""
    machine = book.machines[outcome.machine or book.machine.name].machine
    if any(run.device == "cuda" for run in map(book.run, outcome.runs) if run):
        return len(machine.accelerators), "an accelerator"
    return machine.num_cores, "a core"


def _is_crowded(outcome: Judged) -> bool:
    """Whether a verdict rests on a time that ranks took while they shared cores."""
    return any(side.is_crowded for side in (outcome.predicted, outcome.observed) if side)


@dataclass(frozen=True)
class Missing:
    """What the machine at hand lacks of the runs that a topic or a page needs."""

    needed: list[str]  # as `experiment.run`
    runs: list[str]  # of these, the ones that it has not measured; none where they lack a value
    command: str  # that measures them; empty where it skipped them, because it cannot


def missing_runs(documents: Iterable[Document[Any]], at_hand: Evidence) -> Missing | None:
    """What is missing here for documents that show the reference machine; None for all others."""
    reference = at_hand.reference
    if reference is None:
        return None
    fields = [field for document in documents for field in document.fields]
    expressions = sorted({expression for field in fields for expression in field.expressions})
    named = {field.text for field in fields if field.mark in ("claim", "run", "case")}
    named |= {claim for text in expressions for _, claim in calls_of_claims(text)}
    claims = sorted(named & at_hand.book.claims.keys())
    named = named.union(
        *(reference.evaluate(expression).runs for expression in expressions),
        *(reference.judged(claim).runs for claim in claims),
    )
    known = reference.book
    runs = sorted(path for path in named if known.run(path) and known.machine_of(path))
    ended = [path for path in runs if _status(path, reference)]
    statuses = {_status(path, at_hand) for path in ended}
    of_runs = {field.text for field in fields if field.mark == "per_run"}
    judged = [(at_hand.judged(claim), reference.judged(claim)) for claim in claims]
    is_lacking = (
        None in statuses
        or statuses == {"skipped"}
        or any("no_evidence" == here.verdict != there.verdict for here, there in judged)
        or any(_lacks(expression, at_hand) for expression in expressions)
        or any(_lacks(expression, at_hand, run) for expression in sorted(of_runs) for run in runs)
    )
    return _missing(ended, at_hand) if is_lacking else None


def _missing(needed: list[str], at_hand: Evidence) -> Missing:
    own = {path: _own_run(path, at_hand) for path in needed}
    lacking = [path for path, run in own.items() if run is None or run.status == "skipped"]
    absent = [path for path in lacking if own[path] is None]
    heavy = [path for path, run in own.items() if run is not None and run.is_left_out]
    names = " ".join(sorted({path.partition(".")[0] for path in absent or heavy}))
    return Missing(needed, lacking, measure_command(names, full=not absent) if names else "")


def measured_here(value: Value, at_hand: Evidence) -> Value | None:
    """What the machine at hand has for a number that the reference machine measured, if anything.

    Its code must not have changed since, and its runs have to have ended as declared.
    """
    runs = {f"{one.experiment}.{one.run}" for one in value.run_origins if one.measured_on}
    is_measured = runs and None not in {_status(run, at_hand) for run in runs}
    if not is_measured or value.words or value.machines != {at_hand.book.reference.name}:
        return None
    here = at_hand.evaluate(value.formula).result
    own = {at_hand.book.machine.name}
    if not isinstance(here, Value) or here.machines != own or here.unit != value.unit:
        return None
    if isinstance(here.number, str) and "_" not in str(value.number):  # as `word` prints it
        here = replace(here, number=here.number.replace("_", " "))
    digits = value.form.digits or here.form.digits  # fewer of a time that varies
    return replace(here, form=replace(value.form, digits=digits))


def _status(path: str, evidence: Evidence) -> str | None:
    """How a run ended on the machine of this evidence; None where that says nothing of it today."""
    run = _own_run(path, evidence)
    return None if run is None or run.is_surprise else run.status


def _own_run(path: str, evidence: Evidence) -> Run | None:
    """The machine's own run, if its code has not changed since."""
    experiment, _, name = path.partition(".")
    return _fresh(experiment, evidence).get(name)


def _fresh(experiment: str, evidence: Evidence) -> Mapping[str, Run]:
    """The machine's own runs of an experiment by name; none if its code has changed since."""
    shown = evidence.book.traces[experiment]
    is_own = shown.machine == evidence.book.machine and not shown.is_stale
    return shown.trace.runs if is_own else {}


def _lacks(expression: str, at_hand: Evidence, run: str | None = None) -> bool:
    """Whether a run that ended as declared lacks the value of an expression here."""
    absent = at_hand.evaluate(expression, run).absent
    return absent is not None and absent.is_unexplained

"""Which runs of an experiment are still to be measured on this machine, and which are kept.

In: an experiment's name and the machine's folder. Out: a `Pending`, which says why, which runs will
be measured, and which are kept: a fresh trace that lacks only its full runs keeps the others, and
so does a measurement that was interrupted. What other code measured is never kept. No torch.

An interrupted experiment leaves `.<name>.part`, a trace of the runs that had ended, in the folder;
it is written whole after each run and deleted with the last.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proofbook.runners.core.declared.experiment import Experiment, find
from proofbook.runners.core.trace.machine import installed
from proofbook.runners.core.trace.records import NEEDS_FULL, NO_TORCH, Run, Trace
from proofbook.runners.traces.digest import program_digests, source_digest
from proofbook.runners.traces.files import TraceError, outdated_programs, read


def part_of(name: str, where: Path) -> Path:
    """The file in which the runs of an interrupted experiment are kept."""
    return where / f".{name}.part"


@dataclass(frozen=True)
class Pending:
    """One experiment that is to be measured."""

    experiment: Experiment
    # Missing, stale, shortened, of another torch, unreadable or edited, unfinished, forced, or that
    # its full runs are missing.
    reason: str
    measured: tuple[str, ...]  # the runs that will be, in their order
    left_out: Mapping[str, str] = field(default_factory=dict)  # runs to skip, with why
    # Measured already by this code and this torch, each with its circumstances.
    kept: Mapping[str, Run] = field(default_factory=dict)


def pending(
    name: str,
    where: Path,
    *,
    full: bool = False,
    force: bool = False,
    short: bool = False,
    loaded: Experiment | None = None,
    refused: Mapping[str, str] | None = None,
) -> Pending | None:
    """The Pending: runs to measure, to keep, to leave out, and why; None where nothing is to do.

    `full` adds full runs and experiments, `force` those that are fresh; with `short`, traces of
    shortened runs are fresh, too. `refused` says why several nodes do not measure some runs, whose
    earlier results stay. FixableError where no experiment has this name.
    """
    trace, outdated = existing(where / f"{name}.json", short=short)
    part, problem = existing(part_of(name, where), short=short)
    part = None if problem or force else part
    source = part or (None if outdated or force else trace)
    reason = "unfinished" if part else outdated
    if trace is not None and reason is None:
        reason = _other_programs(trace) or ("forced" if force else None)
    if reason is None and not full:
        return None
    experiment = loaded or find(name)
    traces = [kept for kept in (trace, part) if kept]
    known = {run for kept in traces for run in kept.runs.keys() - kept.left_out}
    heavy = {run for run, declaration in experiment.runs.items() if declaration.full and not full}
    left_out = {**dict.fromkeys(heavy - known, NEEDS_FULL.format(name)), **(refused or {})}
    done = measured_in(source)
    if refused is not None:  # another start may have left out what this one measures
        done = {name: run for name, run in done.items() if run.status != "skipped"}
    kept = {run: done[run] for run in experiment.runs if run in done}
    missing = tuple(run for run in experiment.runs if run not in {*kept, *left_out})
    if missing and source and source.shortened != short:  # a trace's runs are all short, or none
        kept, missing = {}, tuple(run for run in experiment.runs if run not in left_out)
    if not (missing or kept) or (reason is None and not missing):
        return None
    return Pending(experiment, reason or "its full runs are missing", missing, left_out, kept)


def existing(path: Path, *, short: bool = False) -> tuple[Trace | None, str | None]:
    """A pair: the Trace in a file, or None; and why it must be measured again, None where fresh.

    Another Python measures the same, and so does another build of the same release of torch, such
    as one for CUDA on a machine without a device.
    """
    if not path.exists():
        return None, "missing"
    try:
        trace = read(path)
    except TraceError:
        return None, "unreadable or edited"
    used = trace.circumstances.torch
    now = NO_TORCH if used == NO_TORCH else installed("torch")
    if trace.code.digest != source_digest(trace.experiment):
        return trace, "stale"
    if trace.shortened and not short:
        return trace, "shortened"
    if used.partition("+")[0] != now.partition("+")[0]:
        return trace, f"measured with torch {used}; {now} is installed"
    return trace, None


def _other_programs(trace: Trace) -> str | None:
    """Why a trace that is fresh otherwise lacks runs: programs that are new, or were changed."""
    if outdated_programs(trace):
        return "stale"
    missing = program_digests(trace.experiment).keys() - trace.code.programs.keys()
    return "has new programs" if missing else None


def measured_in(source: Trace | None) -> dict[str, Run]:
    """By name: the Runs of a trace, not outdated nor left out, with circumstances filled in."""
    outdated = outdated_programs(source) if source else []
    return {
        name: run.model_copy(update={"circumstances": run.circumstances or source.circumstances})
        for name, run in (source.runs.items() if source else ())
        if source and name not in outdated and not run.is_left_out
    }

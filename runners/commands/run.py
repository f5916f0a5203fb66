"""`python -m runners run`: measure what is pending, then say what surprised.

In: the names of experiments and what is requested (`RunRequest`). Out: traces in the machine's
folder, and `Ran`, which the command prints: how many were measured, what surprised, what is
lacking.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runners.commands.dry import estimated, said, together
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.not_measured import UnfinishedError
from runners.measuring.pending import Pending, lacking, left_out_of, part_of, pending
from runners.measuring.progress import Progress
from runners.measuring.quiet import MOST_RETRIES, NotQuietError, Watch
from runners.plans.experiment import check_name, names
from runners.primitives.measured import PrimitiveError, measure_once
from runners.traces import machine
from runners.traces.files import read
from runners.traces.records import Trace
from runners.traces.summary import how_it_ended, how_it_was_meant_to_end


@dataclass(frozen=True)
class RunRequest:
    """What `run` is requested to do.

    Attributes:
        names: experiments; all where none is named.
        force: measure also what is fresh.
        full: measure the heavier runs and experiments too.
        as_reference: write the committed folder, and see that it is a whole set.

    Where all experiments are requested, the machine's primitives are measured first.
    """

    names: tuple[str, ...] = ()
    force: bool = False
    full: bool = False
    as_reference: bool = False


@dataclass(frozen=True)
class Ran:
    """How `run` ended.

    Attributes:
        where: the folder of the traces.
        num_measured: experiments.
        num_fresh: experiments that needed nothing.
        surprises: runs that ended otherwise than declared, a line each.
        lacking: what a reference set still lacks, a line each.
        heavier: what only `--full` measures and has not.
        not_measured: runs that failed for want of the machine, a line each with the cause.
        not_quiet: of the experiments measured now, those around which the machine was not quiet,
            a line each with the disturbances.
    """

    where: Path
    num_measured: int
    num_fresh: int
    surprises: list[str]
    lacking: list[str]
    heavier: list[str]
    not_measured: list[str]
    not_quiet: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 where a run surprised or was not measured, or a set lacks one; else 0."""
        return 1 if self.surprises or self.lacking or self.not_measured else 0


def check_names(wanted: Sequence[str]) -> list[str]:
    """The experiments named, or all.

    Raises:
        UnknownExperimentError: there is none of that name.
    """
    for name in wanted:
        check_name(name)
    return list(wanted) or names()


def shown(path: Path) -> Path:
    """A path as a person reads it: from the project's root where it lies in it."""
    return path.relative_to(machine.ROOT) if path.is_relative_to(machine.ROOT) else path


def all_pending(request: RunRequest, where: Path) -> list[Pending]:
    """What must be measured of each experiment that is requested."""
    found = (
        pending(name, where, full=request.full, force=request.force)
        for name in check_names(request.names)
    )
    return [one for one in found if one is not None]


def run(request: RunRequest, watch: Watch | None = None) -> Ran:
    """Measure what is pending and say how it ended.

    Args:
        request: what to measure.
        watch: reads how quiet the machine is; a new one where None.

    Raises:
        NotIdleError: for the reference, and other processes keep the machine busy.
        BusyError: another run is measuring here.
        LaunchError: ranks could not be started.
        OSError: the disk refused.
    """
    chosen = check_names(request.names)
    with measure.alone():
        where = measure.folder(as_reference=request.as_reference)
        if request.force:
            for name in chosen:
                part_of(name, where).unlink(missing_ok=True)
        waiting = all_pending(request, where)
        watch = watch or Watch()
        unfinished = _measure(waiting, where, request, watch) if waiting else {}
        if not request.as_reference and (where / "machine.json").exists():
            machine.remember(machine.name_of(where))
    paths = [where / f"{name}.json" for name in chosen if name not in unfinished]
    traces = [read(path) for path in paths if path.exists()]
    num_measured = len(waiting) - len(unfinished)
    return Ran(
        where,
        num_measured,
        len(traces) - num_measured,
        [line for trace in traces for line in surprises_of(trace)],
        lacking(chosen, where) if request.as_reference else [],
        _heavier([name for name in chosen if name not in unfinished], traces),
        [line for causes in unfinished.values() for line in causes],
        _not_quiet(traces, {one.experiment.name for one in waiting}),
    )


def _measure(
    waiting: list[Pending], where: Path, request: RunRequest, watch: Watch
) -> dict[str, list[str]]:
    """Measure what waits; the experiments that are unfinished, each with its causes."""
    unfinished: dict[str, list[str]] = {}
    progress = Progress()
    if request.as_reference:
        watch.wait_until_idle(progress.note)
    watch.begin()  # before processes of ours load torch
    with Launcher(machine.device_kind()) as launcher:
        launcher.prepare(("timed", "metered"))  # torch loads there while it loads here
        if not request.names:  # who names experiments works on them, and has no time for it
            _measure_primitives(launcher, where, progress)
            watch.forget()
        for place, one in enumerate(waiting):
            try:
                _measure_quietly(one, launcher, progress, request, watch)
            except NotQuietError as error:
                unfinished[one.experiment.name] = [error.cause]
            except UnfinishedError as error:
                unfinished[one.experiment.name] = error.causes
                if error.is_lasting:
                    later = [left.experiment.name for left in waiting[place + 1 :]]
                    return unfinished | {name: [f"{name}: waits until then"] for name in later}
    return unfinished


def _measure_quietly(
    one: Pending, launcher: Launcher, progress: Progress, request: RunRequest, watch: Watch
) -> None:
    """Measure an experiment; for the reference again where the machine was not quiet.

    Raises:
        NotQuietError: it was not quiet in any attempt.
        UnfinishedError, LaunchError, OSError.
    """
    if request.as_reference:
        one = one.with_quiet_runs_only()
    for left in reversed(range(1 + MOST_RETRIES)):
        try:
            measure.measure(one, launcher, progress, as_reference=request.as_reference, watch=watch)
        except NotQuietError as error:
            if not left:
                raise
            progress.note(f"{error.cause}; measuring it again")
        else:
            return


def _not_quiet(traces: Sequence[Trace], measured: Collection[str]) -> list[str]:
    """A line for each experiment measured now around which the machine was not quiet."""
    return [
        f"{trace.experiment}: {'; '.join(trace.quiet.disturbances)}"
        for trace in traces
        if trace.experiment in measured and trace.quiet and not trace.quiet.is_quiet
    ]


def _measure_primitives(launcher: Launcher, where: Path, progress: Progress) -> None:
    """Measure the primitives; where that fails, the experiments are measured all the same."""
    try:
        measure_once(launcher, where, progress)
    except PrimitiveError as error:
        progress.said(f"no primitives are measured here: {error}")


def dry(request: RunRequest) -> list[str]:
    """What `run` would do, a line an experiment and one for all; nothing runs."""
    where = measure.folder(as_reference=request.as_reference)
    waiting = all_pending(request, where)
    estimates = [estimated(one, where, machine.TRACES) for one in waiting]
    lines = [
        said(one.experiment.name, one.reason, estimate)
        for one, estimate in zip(waiting, estimates, strict=True)
    ]
    if not lines:
        return ["nothing would run: all that was asked for is fresh"]
    return [*lines, said("in all", "", together(estimates))]


def _heavier(chosen: list[str], traces: list[Trace]) -> list[str]:
    """Runs, and whole experiments, that only `--full` measures and that are not measured."""
    measured = {trace.experiment for trace in traces}
    return [
        *(f"{trace.experiment}.{name}" for trace in traces for name in left_out_of(trace)),
        *(name for name in chosen if name not in measured),
    ]


def surprises_of(trace: Trace) -> list[str]:
    """One line for each run that ended otherwise than declared."""
    return [
        f"{trace.experiment}.{name}: {how_it_ended(run)}, expected {how_it_was_meant_to_end(run)}"
        for name, run in trace.runs.items()
        if run.is_surprise
    ]

"""`python -m runners rerun`: measure what is measured once more, to learn how far times repeat.

In: the fresh traces of this machine. Out: `reruns.json` in its folder, with two values of each run,
and `Reran`, which the command prints. The traces stay as they are. Of each run the timed pass is
measured again, and the metered pass where the whole run was short; so it never takes longer than
the run itself did. The file is written whole after each run: an interruption costs one run, and the
next call measures what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.not_measured import NotMeasuredError
from runners.measuring.pending import staleness
from runners.measuring.progress import Progress
from runners.measuring.quiet import Watch
from runners.plans.experiment import Experiment, PassName, RunPlan, check_name, find, names
from runners.plans.experiment import on_device as as_it_runs_on
from runners.system.errors import FixableError
from runners.traces import machine
from runners.traces.files import (
    TraceError,
    outdated_programs,
    read,
    read_reruns,
    write_reruns,
)
from runners.traces.quiet_record import least_quiet
from runners.traces.records import Run, Trace
from runners.traces.reruns import ExperimentReruns, Rerun, Reruns, rerun_of

METERED_UP_TO_SECONDS = 5.0  # of a run with all its passes; longer ones are only timed again


@dataclass
class Reran:
    """How `rerun` ended.

    Attributes:
        where: the machine's folder.
        num_measured: runs.
        num_kept: runs that had been measured twice before.
        stale: experiments whose trace is of other code, each with the reason.
        not_measured: runs that failed for want of the machine, a line each with the cause.
        not_quiet: experiments around which the machine was not quiet, a line each: their pairs do
            not count, and the next call measures them again.
    """

    where: Path
    num_measured: int = 0
    num_kept: int = 0
    stale: list[str] = field(default_factory=list)
    not_measured: list[str] = field(default_factory=list)
    not_quiet: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Waiting:
    """The runs of one experiment that have a first measurement and no second."""

    trace: Trace
    runs: tuple[str, ...]
    before: ExperimentReruns | None


def rerun(
    wanted: Sequence[str],
    progress: Progress,
    *,
    as_reference: bool = False,
    watch: Watch | None = None,
) -> Reran:
    """Measure runs a second time and keep both values.

    Args:
        wanted: experiments; all that are measured here where none is named.
        progress: who is told.
        as_reference: for the committed folder; waits until the machine is idle.
        watch: reads how quiet the machine is; a new one where None.

    Raises:
        FixableError: none of them is measured here.
        NotIdleError: for the reference, and other processes keep the machine busy.
        UnknownExperimentError, BusyError, LaunchError, TraceError, OSError.
    """
    for name in wanted:
        check_name(name)
    with measure.alone():
        done = Reran(measure.folder(as_reference=as_reference))
        waiting = _waiting(wanted or names(), done)
        watch = watch or Watch()
        if waiting and as_reference:
            watch.wait_until_idle(progress.note)
        if waiting:
            watch.begin()  # before processes of ours load torch
            with Launcher(machine.device_kind()) as launcher:
                launcher.prepare(("timed", "metered"))
                for one in waiting:
                    _measure(one, launcher, progress, watch, done)
    return done


def _waiting(wanted: Sequence[str], done: Reran) -> list[_Waiting]:
    known = read_reruns(done.where)
    traces = [read(p) for name in wanted if (p := done.where / f"{name}.json").exists()]
    if not traces:
        raise FixableError(
            "this machine has no measurement to repeat; `python -m runners run` makes one"
        )
    found = []
    for trace in traces:
        if reason := staleness(trace):
            done.stale.append(f"{trace.experiment}: {reason}")
            continue
        before = known.experiments.get(trace.experiment) if known else None
        if before and (before.is_disturbed or not before.is_of(trace)):
            before = None
        plans = as_it_runs_on(find(trace.experiment), machine.device_kind()).runs
        outdated = outdated_programs(trace)
        again = [
            name
            for name, plan in plans.items()
            if name in trace.runs and name not in outdated and passes_again(trace.runs[name], plan)
        ]
        kept = [name for name in again if before and name in before.runs]
        done.num_kept += len(kept)
        missing = tuple(name for name in again if name not in kept)
        if missing:
            found.append(_Waiting(trace, missing, before))
    return found


def passes_again(run: Run, plan: RunPlan) -> tuple[PassName, ...]:
    """The passes of a run that are measured again; none where nothing would be compared."""
    if run.status != "completed" or run.is_surprise or run.nature != "real":
        return ()
    is_short = run.timing.wall_seconds <= METERED_UP_TO_SECONDS
    timed = "timed" in plan.passes and run.timing.step is not None
    metered = "metered" in plan.passes and is_short
    chosen: dict[PassName, bool] = {"timed": timed, "metered": metered}
    return tuple(name for name, is_measured in chosen.items() if is_measured)


def _measure(
    waiting: _Waiting, launcher: Launcher, progress: Progress, watch: Watch, done: Reran
) -> None:
    """Measure the missing reruns of one experiment; what has ended is kept after each."""
    trace, former = waiting.trace, waiting.before
    experiment = _shorter(waiting, launcher)
    before = watch.begin()
    kept: dict[str, Rerun] = dict(former.runs) if former else {}
    since = former.second_at if former else measure.now()
    whole = ExperimentReruns(
        first_at=trace.recorded_at, digest=trace.code.digest, second_at=since, quiet=None, runs=kept
    )
    progress.begin(experiment)
    for name in experiment.runs:
        try:
            run = measure.measure_run(launcher, experiment, name, progress, trace.runs)
        except NotMeasuredError as error:
            done.not_measured.append(f"{trace.experiment}.{name}: {error}")
            progress.not_measured(name, str(error))
            continue
        progress.ended(name, run)
        kept[name] = rerun_of(trace.runs[name], run)
        done.num_measured += 1
        _keep(done.where, trace.experiment, whole.model_copy(update={"runs": dict(kept)}))
    session = watch.end(before)
    quiet = least_quiet([former.quiet, session]) if former else session
    if kept:
        update = {"runs": dict(kept), "quiet": quiet}
        _keep(done.where, trace.experiment, whole.model_copy(update=update))
    if quiet and not quiet.is_quiet:
        done.not_quiet.append(f"{trace.experiment}: {'; '.join(quiet.disturbances)}")


def _shorter(waiting: _Waiting, launcher: Launcher) -> Experiment:
    """The experiment with the missing runs alone, each with the passes that are measured again."""
    experiment = as_it_runs_on(find(waiting.trace.experiment), launcher.device)
    runs = {
        name: replace(
            experiment.runs[name],
            passes=passes_again(waiting.trace.runs[name], experiment.runs[name]),
            has_timeline=False,
        )
        for name in waiting.runs
    }
    return replace(experiment, runs=runs)


def _keep(where: Path, name: str, reruns: ExperimentReruns) -> None:
    """Write the reruns of one experiment beside those of the others."""
    try:
        known = read_reruns(where)
    except TraceError:  # somebody has edited it meanwhile
        known = None
    others = known.experiments if known else {}
    write_reruns(
        where,
        Reruns(
            schema_version=1,
            machine=machine.name_of(where),
            experiments={**others, name: reruns},
        ),
    )

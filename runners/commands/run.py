"""`python -m runners run`: measure what is pending, then say what surprised.

In: the names of experiments and what is requested (`RunRequest`). Out: traces in the machine's
folder, and `Ran`, which the command prints: how many were measured, what surprised, what is
lacking.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runners.commands.dry import estimated, said, together
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.not_measured import NotMeasuredError, UnfinishedError
from runners.measuring.pending import Pending, lacking, left_out_of, part_of, pending
from runners.measuring.progress import Progress
from runners.measuring.quiet import MOST_RETRIES, NotQuietError, Watch
from runners.plans.experiment import check_names, find, on_device, whole_is_full
from runners.primitives.measured import PrimitiveError, measure_once
from runners.simulate import allocator_check
from runners.system import accelerator
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

    def measures_heavy(self, name: str) -> bool:
        """Whether heavy runs are wanted: by option, or a named experiment has no others."""
        return self.full or (name in self.names and whole_is_full(name))


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

    def say(self) -> None:
        """Print how it ended; what needs a look goes to standard error."""
        lost = f", {len(self.not_measured)} not measured" if self.not_measured else ""
        print(
            f"{self.num_measured} measured, {self.num_fresh} already fresh, "
            f"{len(self.surprises)} surprises{lost}; traces in {machine.shown(self.where)}"
        )
        if self.heavier:
            print(f"left to --full: {_in_short(self.heavier)}")
        for line in self.surprises:
            print(f"surprise: {line}", file=sys.stderr)
        for line in self.not_measured:
            print(f"not measured: {line}", file=sys.stderr)
        if self.not_quiet:
            first, more = self.not_quiet[0], len(self.not_quiet) - 1
            others = f" (and {more} more experiments)" if more else ""
            print(f"the machine was not quiet: {first}{others}", file=sys.stderr)
        if self.not_measured:
            print("traces are as before; the next `run` measures what is missing", file=sys.stderr)
        for line in self.lacking:
            print(f"the reference set lacks {line}", file=sys.stderr)


def _in_short(heavier: Sequence[str]) -> str:
    """Experiments by name, single runs by their number: there may be many."""
    whole = [name for name in heavier if "." not in name]
    single = len(heavier) - len(whole)
    runs = [f"{single} runs; `run --dry --full` names their experiments"] if single else []
    return ", ".join([*whole, *runs])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="experiments; all without one")
    add("--force", action="store_true", help="measure also what is fresh")
    add("--full", action="store_true", help="measure the heavier runs and experiments too")
    add("--dry", action="store_true", help="say what would run, how long, how much memory")
    add("--repeat", type=_positive, metavar="N", help="run N times, count outcomes")
    add(
        "--as-reference",
        action="store_true",
        help="write the committed reference folder, and see that it lacks nothing",
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main(arguments: argparse.Namespace) -> int:
    """Measure, or say what would be measured; 1 where a run surprised or was not measured."""
    if arguments.repeat is not None:
        return _repeat(arguments.names, arguments.repeat)
    request = RunRequest(
        tuple(arguments.names), arguments.force, arguments.full, arguments.as_reference
    )
    if arguments.dry:
        print("\n".join(dry(request)))
        return 0
    ran = run(request)
    ran.say()
    replayed = allocator_check.checked() if accelerator.num_devices() else None
    if replayed is not None:
        print(replayed.line(), file=sys.stdout if replayed.agrees else sys.stderr)
    return ran.exit_code


def _repeat(wanted: Sequence[str], times: int) -> int:
    chosen = check_names(wanted)
    worst = 0
    with measure.alone(), Launcher(machine.device_kind()) as launcher:
        for name in chosen:
            experiment = on_device(find(name), launcher.device)
            for run_name, plan in experiment.runs.items():
                counts: Counter[str] = Counter()
                for turn in range(times):
                    try:
                        run = measure.measure_run(launcher, experiment, run_name)
                    except NotMeasuredError as error:
                        counts[f"not measured: {error}"] += 1
                        worst = 1
                        continue
                    counts[how_it_ended(run)] += 1
                    worst = max(worst, int(run.is_surprise))
                    if sys.stderr.isatty():
                        sys.stderr.write(f"\r\x1b[K{name}.{run_name} {turn + 1}/{times}")
                if sys.stderr.isatty():
                    sys.stderr.write("\r\x1b[K")
                said = "; ".join(f"{n} of {times} {end}" for end, n in counts.most_common())
                expected = plan.expected.replace("_", " ")
                print(f"{name}.{run_name} (expected {expected}): {said}", flush=True)
    return worst


def all_pending(request: RunRequest, where: Path) -> list[Pending]:
    """What must be measured of each experiment that is requested."""
    found = (
        pending(name, where, full=request.measures_heavy(name), force=request.force)
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
                unfinished[one.experiment.name] = [str(error)]
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
            progress.note(f"{error}; measuring it again")
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

"""`python -m runners run`: measure what is pending, then say what surprised.

In: the names of experiments and what is requested (`RunRequest`). Out: traces in the machine's
folder, and `Ran`, which the command prints: how many were measured, what surprised, what is
lacking.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

from runners.commands.dry import estimated, said, together
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.not_measured import UnfinishedError, is_full
from runners.measuring.pending import Pending, existing, lacking, part_of, pending
from runners.measuring.progress import Progress
from runners.measuring.quiet import NotQuietError, Readings
from runners.plans.experiment import check_names, whole_is_full
from runners.primitives.measured import PrimitiveError, measure_once
from runners.system import accelerator
from runners.traces import machine
from runners.traces.files import read
from runners.traces.records import Run, Trace
from runners.traces.summary import how_it_ended, how_it_was_meant_to_end

MOST_RETRIES = 2  # of an experiment that was not quiet, for the reference set


@dataclass(frozen=True)
class RunRequest:
    """What `run` is requested to do.

    Where all experiments are requested, the machine's primitives are measured first.

    Attributes:
        names: experiments; all where none is named.
        force: measure also what is fresh.
        full: measure the heavier runs and experiments too.
        as_reference: write the committed folder, and see that it is a whole set.
    """

    names: tuple[str, ...] = ()
    force: bool = False
    full: bool = False
    as_reference: bool = False

    def pending(self, where: Path) -> list[Pending]:
        """What must be measured of each experiment; a heavy one, where it is named."""
        found = []
        for name in check_names(self.names):
            full = self.full or (name in self.names and whole_is_full(name))
            found.append(pending(name, where, full=full, force=self.force))
        return [one for one in found if one is not None]


@dataclass
class Ran:
    """How `run` ended; each list has a line for each run or experiment that it is about.

    Attributes:
        where: the folder of the traces.
        num_measured: experiments.
        num_fresh: experiments that needed nothing.
        surprises: runs that ended otherwise than declared.
        lacking: what a reference set still lacks.
        heavier: experiments that only `--full` measures and has not.
        num_heavier_runs: such runs of the other experiments, which may be many.
        not_measured: runs that failed for want of the machine; each cause has been said.
        not_quiet: experiments measured now around which the machine was not quiet.
    """

    where: Path
    num_measured: int = 0
    num_fresh: int = 0
    surprises: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    heavier: list[str] = field(default_factory=list)
    num_heavier_runs: int = 0
    not_measured: list[str] = field(default_factory=list)
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
        runs = f"{self.num_heavier_runs} runs; `run --dry --full` names their experiments"
        if left := [*self.heavier, *([runs] if self.num_heavier_runs else [])]:
            print(f"left to --full: {', '.join(left)}")
        lines = [f"surprise: {line}" for line in self.surprises]
        if self.not_measured:
            lines.append(f"not measured, for the causes above: {', '.join(self.not_measured)}")
        if self.not_quiet:
            first, more = self.not_quiet[0], len(self.not_quiet) - 1
            others = f" (and {more} more experiments)" if more else ""
            lines.append(f"the machine was not quiet: {first}{others}")
        if self.not_measured:
            lines.append("traces are as before; the next `run` measures what is missing")
        lines += [f"the reference set lacks {line}" for line in self.lacking]
        sys.stderr.writelines(f"{line}\n" for line in lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="experiments; all without one")
    add("--force", action="store_true", help="measure also what is fresh")
    add("--full", action="store_true", help="measure the heavier runs and experiments too")
    add("--dry", action="store_true", help="say what would run, how long, how much memory")
    add(
        "--as-reference",
        action="store_true",
        help="write the committed reference folder, and see that it lacks nothing",
    )


def main(arguments: argparse.Namespace) -> int:
    """Measure, or say what would be measured; 1 where a run surprised or was not measured."""
    request = RunRequest(
        tuple(arguments.names), arguments.force, arguments.full, arguments.as_reference
    )
    if arguments.dry:
        print("\n".join(dry(request)))
        return 0
    ran = run(request)
    ran.say()
    return ran.exit_code


def run(request: RunRequest, readings: Readings | None = None) -> Ran:
    """Measure what is pending and say how it ended.

    Args:
        request: what to measure.
        readings: of how quiet the machine is; new ones where None.

    Raises:
        FixableError: another run is measuring here.
        LaunchError: ranks could not be started.
        OSError: the disk refused.
    """
    chosen = check_names(request.names)
    with measure.alone():
        ran = Ran(measure.folder(as_reference=request.as_reference))
        if request.force:
            for name in chosen:
                part_of(name, ran.where).unlink(missing_ok=True)
        waiting = request.pending(ran.where)
        former = {name: existing(ran.where / f"{name}.json")[0] for name in chosen}
        readings = readings or Readings()
        unfinished = _measure(waiting, ran.where, request, readings) if waiting else {}
        if not request.as_reference and (ran.where / "machine.json").exists():
            machine.remember(machine.name_of(ran.where))
    measured = {one.experiment.name for one in waiting} - unfinished.keys()
    ran.num_measured = len(measured)
    ran.not_measured = [name for names in unfinished.values() for name in names]
    for name in chosen:
        path = ran.where / f"{name}.json"
        if name not in unfinished and path.exists():
            _add(ran, read(path), former[name], is_new=name in measured)
        elif name not in unfinished:
            ran.heavier.append(name)
    if request.as_reference:
        ran.lacking = lacking(chosen, ran.where)
    return ran


def _add(ran: Ran, trace: Trace, former: Trace | None, *, is_new: bool) -> None:
    """Add what is to be said of one trace; `former` stood in its place before."""
    name, quiet = trace.experiment, trace.quiet
    before = former.runs if former else {}
    ran.num_fresh += not is_new
    ran.surprises += [
        f"{name}.{run}: {how_it_ended(one)}, expected {how_it_was_meant_to_end(one)}"
        f"{_more_of(name, one, before.get(run), is_new=is_new)}"
        for run, one in trace.runs.items()
        if one.is_surprise
    ]
    ran.num_heavier_runs += len(trace.left_out)
    if is_new and quiet is not None and not quiet.is_quiet:
        ran.not_quiet.append(f"{name}: {'; '.join(quiet.disturbances)}")


def _more_of(experiment: str, run: Run, former: Run | None, *, is_new: bool) -> str:
    """Whether a surprise replaced an earlier run that was none, and how to see its traceback."""
    said = ""
    if is_new and former is not None and former.status == former.expected_status:
        said += "; its trace replaced one that ended as declared"
    if run.error is not None and run.error.kind == "exception":
        said += (
            f"; for the traceback: PROOFBOOK_STDERR=1 python -m runners run {experiment} --force"
        )
    return said


def _measure(
    waiting: list[Pending], where: Path, request: RunRequest, readings: Readings
) -> dict[str, list[str]]:
    """Measure what waits; the experiments that are unfinished, each with what was not measured."""
    unfinished: dict[str, list[str]] = {}
    progress = Progress()
    readings.begin()  # before processes of ours load torch
    with Launcher(accelerator.kind()) as launcher:
        plans = (one.experiment.runs[run] for one in waiting for run in one.measured)
        launcher.prepare(sorted({name for plan in plans for name in plan.passes}))
        if not request.names:  # who names experiments works on them, and has no time for it
            try:
                measure_once(launcher, where, progress)
            except PrimitiveError as error:  # the experiments are measured all the same
                progress.said(f"no primitives are measured here: {error}")
            readings.begin()
        for one in waiting:
            name = one.experiment.name
            if unfinished and (launcher.is_full() or is_full(where)):
                unfinished[name] = [name]  # it waits until there is space again
                continue
            try:
                _measure_quietly(one, launcher, progress, request, readings)
            except NotQuietError as error:
                progress.note(str(error))
                unfinished[name] = [name]
            except UnfinishedError as error:
                unfinished[name] = list(error.causes)
    return unfinished


def _measure_quietly(
    one: Pending, launcher: Launcher, progress: Progress, request: RunRequest, readings: Readings
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
            measure.measure(
                one, launcher, progress, as_reference=request.as_reference, readings=readings
            )
        except NotQuietError as error:
            if not left:
                raise
            progress.note(f"{error}; measuring it again")
        else:
            return


def dry(request: RunRequest) -> list[str]:
    """What `run` would do, a line an experiment and one for all; nothing runs."""
    where = measure.folder(as_reference=request.as_reference)
    waiting = request.pending(where)
    estimates = [estimated(one, where, machine.TRACES) for one in waiting]
    lines = [
        said(one.experiment.name, one.reason, estimate)
        for one, estimate in zip(waiting, estimates, strict=True)
    ]
    if not lines:
        return ["nothing would run: all that was asked for is fresh"]
    return [*lines, said("in all", "", together(estimates))]

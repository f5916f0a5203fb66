"""`python -m runners run`: measure what is pending, then say what surprised.

In: the names of experiments and what is requested (`RunRequest`). Out: traces in the machine's
folder, and `Ran`, which the command prints: how many were measured, what surprised, what is left.

With `--dry` nothing runs. How long a run takes, and how much memory its ranks take together, is
read off its last trace here, however stale; else off the reference machine's. What the command does
beside its runs is added: it loads torch, and reads the machine after each experiment.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proofbook.runners.commands.side_by_side import SideBySide
from proofbook.runners.core.declared.experiment import check_names, find, runs_named
from proofbook.runners.core.measuring import measure, quiet
from proofbook.runners.core.measuring.endings import UnfinishedError, is_full
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.measuring.quiet import Readings
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import NEEDS_FULL, NO_TORCH, Run, Trace
from proofbook.runners.plain import measure as plain
from proofbook.runners.session.pending import Pending, existing, measured_in, pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.book import is_plain, program
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.files import TraceError, read, read_machine
from proofbook.runners.traces.summary import how_it_ended, how_it_was_meant_to_end

LOADING_SECONDS = 4.0  # for torch, in the command and in what it forks ranks from
READING_SECONDS = quiet.CANARY_SECONDS + quiet.LOAD_SECONDS
# Of the pending experiments those to measure, in turn; each is asked for when the last has ended.
InTurn = Callable[[list[Pending], Launcher], Iterable[Pending]]


@dataclass(frozen=True)
class RunRequest:
    """The arguments of `run`."""

    names: tuple[str, ...] = ()  # EXPERIMENT or EXPERIMENT.RUN; all where none is named
    force: bool = False  # measure also what is fresh
    full: bool = False  # measure the heavier runs and experiments too
    as_reference: bool = False  # write the committed folder
    short: bool = False  # with the sizes of a try; a later run without it measures them again

    @property
    def experiments(self) -> list[str]:
        """The experiments that are named, each once, or all."""
        return check_names([name.partition(".")[0] for name in self.names])

    def pending(self, where: Path) -> list[Pending]:
        """A list of `Pending`, by experiment; heavy runs only where named, or with `full`."""
        waiting: list[Pending | None] = []
        for name in self.experiments:
            full = self.full or (name in self.names and find(name).is_full)
            runs = [path for path in self.names if path.startswith(f"{name}.")]
            if runs and name not in self.names:
                waiting.append(_pending_of(name, runs_named(runs)[name], where, short=self.short))
            else:
                waiting.append(pending(name, where, full=full, force=self.force, short=self.short))
        return [*filter(None, waiting)]


def _pending_of(name: str, runs: Sequence[str], where: Path, *, short: bool) -> Pending:
    """The named runs of an experiment as pending, with those that are missing and not heavy.

    FixableError where heavier runs were measured, and would have to be measured again.
    """
    experiment, (trace, _) = find(name), existing(where / f"{name}.json", short=short)
    waiting = pending(name, where, full=True, short=short)
    kept = dict(waiting.kept if waiting else measured_in(trace))
    if trace and trace.shortened != short:
        kept = {}
    kept = {run: measured for run, measured in kept.items() if run not in runs}
    left = {run for run, declared in experiment.runs.items() if declared.full} - {*runs, *kept}
    lost = sorted(left & trace.runs.keys() - {*trace.left_out}) if trace else []
    if lost:
        raise FixableError(
            f"{len(lost)} other runs of {name} are stale, too; all: run {name} --full, "
            f"this one beside the book: try {name}.{runs[0]}"
        )
    wanted = tuple(run for run in experiment.runs if run not in {*kept, *left})
    return Pending(experiment, "named", wanted, dict.fromkeys(left, NEEDS_FULL.format(name)), kept)


@dataclass
class Ran:
    """The result of `run`."""

    where: Path  # the folder of the traces
    num_measured: int = 0  # experiments
    num_fresh: int = 0  # experiments that needed nothing
    num_left: int = 0  # runs that only `--full` measures, and has not
    surprises: list[str] = field(default_factory=list)  # a line a run that ended unlike declared
    not_measured: list[str] = field(default_factory=list)  # runs, whose causes have been said
    not_quiet: list[str] = field(default_factory=list)  # experiments measured now beside a load

    @property
    def exit_code(self) -> int:
        """1 where a run surprised or was not measured; else 0."""
        return 1 if self.surprises or self.not_measured else 0

    def add(self, trace: Trace, *, is_new: bool) -> None:
        """Count a trace as measured or fresh; note surprises, runs left out, and a busy machine."""
        self.num_measured += is_new
        self.num_fresh += not is_new
        self.num_left += len(trace.left_out)
        for name, run in trace.runs.items():
            if run.is_surprise:
                self.surprises.append(_surprise(trace.experiment, name, run))
        if is_new and trace.quiet and not trace.quiet.was_quiet:
            self.not_quiet.append(trace.experiment)

    def say(self) -> None:
        """Print the counts; surprises and lost runs go to standard error."""
        lost = f", {len(self.not_measured)} not measured" if self.not_measured else ""
        print(
            f"{self.num_measured} measured, {self.num_fresh} already fresh, "
            f"{len(self.surprises)} surprises{lost}; traces in {machine.from_home(self.where)}"
        )
        if self.num_left:
            print(f"left to --full: {self.num_left} runs; see `{program()} run --dry --full`")
        lines = [f"surprise: {line}" for line in self.surprises]
        if self.not_measured:
            lines.append(f"not measured, for the causes above: {', '.join(self.not_measured)}")
            lines.append("traces are as before; the next `run` measures what is missing")
        if self.not_quiet:
            names = ", ".join(self.not_quiet)
            lines.append(f"the machine was not quiet around {names}; times there may be too long")
        sys.stderr.writelines(f"{line}\n" for line in lines)


def _surprise(experiment: str, name: str, run: Run) -> str:
    ended, meant = how_it_ended(run), how_it_was_meant_to_end(run)
    line = f"{experiment}.{name}: {ended}, expected {meant}"
    if run.error is None or run.error.kind != "exception":
        return line
    command = f"PROOFBOOK_STDERR=1 {program()} run {experiment} --force"
    return f"{line}; to measure again, with the traceback: {command}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="EXPERIMENT or EXPERIMENT.RUN; all without one")
    add("--force", action="store_true", help="measure also what is fresh")
    add("--full", action="store_true", help="measure the heavier runs and experiments too")
    add("--dry", action="store_true", help="say what would run, how long, how much memory")
    add("--as-reference", action="store_true", help="write the committed reference folder")
    add("--short", action="store_true", help="with the sizes of a try, for tests of this project")


def main(arguments: argparse.Namespace) -> int:
    """Measure, or print what would be; returns 1 if a run surprised or was not measured, else 0."""
    as_reference = arguments.as_reference or plain.is_reference()
    request = RunRequest(
        tuple(arguments.names), arguments.force, arguments.full, as_reference, arguments.short
    )
    if arguments.dry:
        where = measure.folder(as_reference=request.as_reference)
        print("\n".join(estimates(request.pending(where), where, request.as_reference)))
        return 0
    ran = run(request)
    ran.say()
    return ran.exit_code


def run(request: RunRequest, in_turn: InTurn = lambda waiting, _: waiting) -> Ran:
    """Measure what is pending, under a lock; returns a `Ran`: counts and surprises of requested.

    What `in_turn` leaves out stays pending. FixableError where another run is measuring here;
    LaunchError where ranks could not be started.
    """
    chosen = request.experiments
    with measure.alone():
        where = measure.folder(as_reference=request.as_reference)
        if request.as_reference:
            _refuse_mixed(where, request)
        waiting = request.pending(where)
        with_ranks = []
        for pending_runs in waiting:
            if is_plain(pending_runs.experiment.name):
                plain.measure(pending_runs.experiment, where, Progress())
            else:
                with_ranks.append(pending_runs)
        unfinished = _measure(with_ranks, where, request, in_turn) if with_ranks else {}
        if not request.as_reference and (where / "machine.json").exists():
            machine.remember(where.name)
    ran = Ran(where, not_measured=[name for names in unfinished.values() for name in names])
    measured = {pending_runs.experiment.name for pending_runs in waiting}
    for name in (name for name in chosen if name not in unfinished):
        path = where / f"{name}.json"
        if path.exists():
            ran.add(read(path), is_new=name in measured)
        else:  # all of it is heavy
            ran.num_left += len(find(name).runs)
    return ran


def _refuse_mixed(where: Path, request: RunRequest) -> None:
    """Refuse a reference unless one machine measures all of it, with all its instructions."""
    if request.short:
        raise FixableError("a reference is measured in full sizes; leave out --short")
    for name in measure.VARIABLES:
        if name in os.environ:
            raise FixableError(f"{name} is set, and a reference is measured without it; unset it")
    if not (where / "machine.json").exists() or (request.force and not request.names):
        return
    known, here = vars(read_machine(where)), vars(machine.describe(where.name, NO_TORCH))
    for fact in ("cpu", "caches", "num_cores", "accelerators"):
        if known[fact] != here[fact]:
            raise FixableError(
                f"{where.name} was measured where {fact} is {known[fact]}, here it is "
                f"{here[fact]}; measure all of it anew: --force without names"
            )


class _Named(Progress):
    """Says nothing of the many runs that were not named."""

    def kept(self, name: str) -> None:
        """Print nothing of a run that was measured before."""

    def ended(self, name: str, run: Run) -> None:
        """Print how a run ended, unless it was left out."""
        if not run.is_left_out:
            super().ended(name, run)


def _measure(
    waiting: list[Pending], where: Path, request: RunRequest, in_turn: InTurn
) -> dict[str, list[str]]:
    """Measure experiments with ranks; the unfinished ones, each with its runs not measured.

    One that `in_turn` has left out has no such runs.
    """
    unfinished: dict[str, list[str]] = {}
    reference, several = request.as_reference, len(waiting) > 1
    left = {runs.experiment.name: expected_seconds(runs, where, reference) for runs in waiting}
    progress = _Named() if any("." in name for name in request.names) else Progress()
    seconds, num_runs, num_ended = sum(left.values()), sum(len(o.measured) for o in waiting), 0
    if several:
        progress.line(f"{len(waiting)} experiments, which last took {seconds / 60:.1f} min")
    start = time.monotonic()
    readings = Readings()
    readings.begin()  # before processes of ours load torch
    device = accelerator.kind()
    with SideBySide() if several and device == "cpu" else Launcher(device) as launcher:
        launcher.is_short = request.short
        declared = (runs.experiment.runs[name] for runs in waiting for name in runs.measured)
        launcher.prepare(sorted({name for declaration in declared for name in declaration.passes}))
        for runs in in_turn(waiting, launcher):
            name = runs.experiment.name
            if num_ended:
                pace = (time.monotonic() - start) / (seconds - sum(left.values()))
                minutes = max(1, round(pace * sum(left.values()) / 60))
                progress.line(f"{num_ended} of {num_runs} runs have ended, {minutes} min left")
            num_ended += len(runs.measured)
            del left[name]
            if unfinished and (launcher.is_full() or is_full(where)):
                unfinished[name] = [name]  # it waits until there is space again
                continue
            try:
                if isinstance(launcher, SideBySide):
                    launcher.run_ahead(runs, _known(runs, where))
                measure.measure(runs, launcher, progress, as_reference=reference, readings=readings)
            except UnfinishedError as error:
                unfinished[name] = list(error.causes)
    return unfinished | {name: [] for name in sorted(left)}


def estimates(waiting: Sequence[Pending], where: Path, as_reference: bool = False) -> list[str]:
    """A list of lines, for each experiment and in all: runs, time and memory, by known runs.

    A reference repeats each training for its spread.
    """
    if not waiting:
        return ["nothing would run: everything requested is fresh"]
    lines, known, total_seconds, num_runs = [], list[Run](), LOADING_SECONDS, 0
    for experiment in waiting:
        name, measured = experiment.experiment.name, len(experiment.measured)
        runs = [*_known(experiment, where).values()]
        seconds = _seconds(runs, as_reference)
        lines.append(_line(name, measured, runs, seconds, experiment.reason))
        known += runs
        num_runs += measured
        total_seconds += seconds
    return [*lines, _line("in all", num_runs, known, total_seconds)]


def expected_seconds(waiting: Pending, where: Path, as_reference: bool = False) -> float:
    """The estimated seconds of an experiment, by its last runs here, else on the reference."""
    return _seconds([*_known(waiting, where).values()], as_reference)


def _seconds(runs: Sequence[Run], as_reference: bool) -> float:
    """The estimated seconds of an experiment, with the reading after it, by its last runs.

    A reference takes the timed pass of a training again, under other instruction sets.
    """
    seconds = READING_SECONDS
    for run in runs:
        is_repeated = as_reference and run.spread is not None
        again = len(measure.INSTRUCTION_SETS) / len(run.passes) if is_repeated else 0
        seconds += run.timing.wall_seconds * (1 + again)
    return seconds


def _known(waiting: Pending, where: Path) -> dict[str, Run]:
    """By name: the last measurements of pending runs, of here, else of the reference machine."""
    known: dict[str, Run] = {}
    for folder in (*reversed(machine.references()), where):
        try:
            runs = read(folder / f"{waiting.experiment.name}.json").runs
        except TraceError:
            continue
        known |= {name: run for name, run in runs.items() if run.status != "skipped"}
    return {name: known[name] for name in waiting.measured if name in known}


def _line(name: str, num_runs: int, known: Sequence[Run], seconds: float, reason: str = "") -> str:
    """A line of estimates: runs, their seconds one after another, and the largest known peak."""
    least = "" if len(known) == num_runs else "at least "
    length = f"{least}{seconds:.1f} s"
    peak_bytes = max(map(_peak_bytes, known), default=0)
    peak = f"{peak_bytes / 2**20:.0f}" if peak_bytes else "?"  # or none of them was metered
    return f"{name:<20} {num_runs:>3} runs {length:>17} {peak:>8} MiB  {reason}".rstrip()


def _peak_bytes(run: Run) -> int:
    """The sum of the peaks of all ranks of a run; fake tensors take no memory."""
    known = [rank.memory for rank in run.ranks if rank.memory and run.nature != "simulated"]
    return sum(memory.peak_bytes or memory.kernel_peak_bytes or 0 for memory in known)

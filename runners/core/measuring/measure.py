"""Measure one experiment: every run, every pass, into one trace.

In: what of it is pending (`pending.py`). Out: a `Trace` on disk, written whole.
"""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from proofbook.runners.core.declared.experiment import Declaration, Experiment, PassName, find
from proofbook.runners.core.measuring.endings import (
    NotMeasuredError,
    UnfinishedError,
    missing_resource,
)
from proofbook.runners.core.measuring.gather import gather, skipped
from proofbook.runners.core.measuring.launch import Launcher, PassResult, Place
from proofbook.runners.core.measuring.quiet import Readings
from proofbook.runners.core.system.links import cannot_link
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Code, Failure, Machine, Quiet, Run, Trace, trace_of
from proofbook.runners.core.trace.spread import leaves, spread_of
from proofbook.runners.session.pending import Pending, part_of
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.book import ROOT
from proofbook.runners.system.errors import FixableError
from proofbook.runners.system.files import TORN
from proofbook.runners.traces.digest import ROOTS, program_digests, source_digest
from proofbook.runners.traces.files import write

# Of torch's own kernels, MKL and oneDNN. Under each, sums round otherwise than where a processor
# chooses for itself, AMD's or Intel's: on AMD's, MKL gives with AVX2 what it gives unasked.
VARIABLES = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")
INSTRUCTION_SETS = (("default", "COMPATIBLE", "SSE41"), ("avx2", "COMPATIBLE", "AVX2"))


def folder(*, as_reference: bool = False) -> Path:
    """The folder of this machine's traces."""
    return machine.TRACES / machine.name(as_reference=as_reference)


@contextmanager
def alone() -> Iterator[None]:
    """A context: lock the traces, delete torn files, create the machine's id; else FixableError."""
    machine.TRACES.mkdir(parents=True, exist_ok=True)
    with (machine.TRACES / ".running").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise FixableError(
                f"another run is measuring here (process {file.read().strip()}); "
                "wait until it has ended, or stop it"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        for torn in machine.TRACES.rglob(f".*{TORN}"):
            torn.unlink(missing_ok=True)
        machine.keep_id()
        yield
        file.truncate(0)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def code_of(name: str) -> Code:
    """A `Code`: digests of an experiment's code and programs, commit, whether git sees changes."""
    status = _git("status", "--porcelain", "--", *ROOTS, "content/topics")
    return Code(
        digest=source_digest(name),
        programs=program_digests(name),
        commit=_git("rev-parse", "--short=12", "HEAD"),
        dirty=bool(status),
    )


def cannot_run(declaration: Declaration, place: Place) -> str | None:
    """Why a shared GPU, missing links or no memory limit rule a run out; None where none does."""
    shares = place == Place("cuda", "gloo") and declaration.world_size > 1
    if shares and not declaration.can_share_device:
        return (
            f"{declaration.world_size} ranks would share an accelerator, where gloo lacks the "
            "collectives this strategy needs"
        )
    if declaration.own_network and (reason := cannot_link()):
        return reason
    return machine.can_limit_memory() if declaration.budget_bytes is not None else None


def measure_run(
    launcher: Launcher,
    experiment: Experiment,
    name: str,
    progress: Progress | None = None,
    earlier: Mapping[str, Run] = MappingProxyType({}),
) -> Run:
    """The Run from its passes, up to the first that fails; a skipped Run where `cannot_run`.

    A run that it follows is measured first if not in `earlier`; a pass that failed as another may
    not, once more under another launcher. NotMeasuredError where it failed for want of the machine,
    which is no evidence; LaunchError where ranks could not be started.
    """
    declaration = experiment.runs[name]
    place = launcher.place_of(declaration)
    if reason := cannot_run(declaration, place):
        return skipped(declaration, reason, place)
    followed = _followed(launcher, experiment, declaration, earlier)
    results: dict[PassName, PassResult] = {}
    for pass_name in declaration.passes:
        watch = progress.watcher(name, pass_name) if progress else None
        result = launcher.run_pass(experiment, name, pass_name, watch, followed)
        if result.root_cause and _may_pass(result, result.root_cause):
            if progress:
                progress.again(name, result.root_cause.message)
            with Launcher(launcher.device, launcher.quiet_seconds) as another:
                another.most_bytes = launcher.most_bytes
                result = another.run_pass(experiment, name, pass_name, watch, followed)
        if result.not_measured is not None:
            raise NotMeasuredError(result.not_measured)
        results[pass_name] = result
        if result.root_cause is not None:
            break
    return gather(declaration, results, place, oversubscribed=launcher.is_crowded(declaration))


def _may_pass(result: PassResult, cause: Failure) -> bool:
    """Whether a pass that failed so may succeed under another launcher.

    A small heap may grow by more than the meter explains, in all calls of ranks that one forkserver
    made, and in none of another's; a missed tensor is missed under both. Ranks over slow links may
    wait for each other's connections before their experiment begins, beside other work.
    """
    waited = cause.kind == "hang" and result.not_measured is not None
    return waited or "MeterDisagreesError" in cause.message


def _followed(
    launcher: Launcher, experiment: Experiment, declaration: Declaration, earlier: Mapping[str, Run]
) -> dict[str, list[float]]:
    """The measured times of the run that this one follows, in seconds, raw."""
    if declaration.follows is None:
        return {}
    run = earlier.get(declaration.follows)
    if run is None:  # a single run is tried, or tested
        run = measure_run(launcher, launcher.fitted(find(experiment.name)), declaration.follows)
    return {name: times.samples for name, times in run.timing.sampled.items()}


def measure(
    waiting: Pending,
    launcher: Launcher,
    progress: Progress,
    *,
    as_reference: bool = False,
    readings: Readings | None = None,
    here: Machine | None = None,
) -> Trace:
    """Measure the pending runs; write and return the experiment's Trace of these and the kept runs.

    After each run, what has ended is kept in the part file, so that an interruption costs one run.
    The trace on disk is replaced only by a whole one: where a run could not be measured, what was
    measured waits in the part file for the next time.

    The trace records how quiet the machine was, by `readings` that have begun, unless it keeps runs
    of another time. `here` is the machine, where several nodes are one. UnfinishedError where some
    runs could not be measured, or the disk is full; else FixableError, LaunchError or OSError.
    """
    name = waiting.experiment.name
    # Taken before it runs: an edit meanwhile makes the trace stale, not false.
    code = code_of(name)
    experiment = launcher.fitted(waiting.experiment)
    described = here or machine.describe(folder(as_reference=as_reference).name)
    where = machine.TRACES / described.name
    part = part_of(name, where)
    progress.begin(experiment)

    def assembled(runs: dict[str, Run], quiet: Quiet | None = None) -> Trace:
        under, asks, is_short = machine.circumstances(), experiment.question, experiment.is_short
        return trace_of(name, asks, code, under, described.name, runs, quiet, shortened=is_short)

    def keep(runs: dict[str, Run]) -> None:
        write(part, assembled({**waiting.kept, **runs}))

    try:
        runs, causes = _runs(waiting, launcher, experiment, progress, keep, as_reference)
        quiet = readings.end() if readings else None
        if causes:
            raise UnfinishedError(causes)
        trace = assembled(runs, None if waiting.kept else quiet)
        write(where / "machine.json", described)
        write(where / f"{name}.json", trace)
    except OSError as error:
        lacking = missing_resource(str(error), where)
        if lacking is None:
            raise
        progress.line(f"not measured: {lacking}")
        raise UnfinishedError({name: lacking}) from None
    part.unlink(missing_ok=True)
    if not as_reference and here is None:
        machine.remember(described.name)
    return trace


def _runs(
    waiting: Pending,
    launcher: Launcher,
    experiment: Experiment,
    progress: Progress,
    keep: Callable[[dict[str, Run]], None],
    has_spread: bool,
) -> tuple[dict[str, Run], dict[str, str]]:
    """The runs that were kept, left out or measured; and by name, why others were not measured."""
    runs: dict[str, Run] = {}
    causes: dict[str, str] = {}
    for name, declaration in experiment.runs.items():
        if name in waiting.kept:
            progress.kept(name)
            runs[name] = waiting.kept[name]
            continue
        try:
            if name in waiting.left_out:
                place = launcher.place_of(declaration)
                runs[name] = skipped(declaration, waiting.left_out[name], place)
            else:
                run = measure_run(launcher, experiment, name, progress, runs)
                again = (name, experiment, launcher, progress)
                runs[name] = with_spread(run, *again) if has_spread else run
        except (NotMeasuredError, OSError) as error:
            is_known, temporary = isinstance(error, NotMeasuredError), Path(tempfile.gettempdir())
            cause = str(error) if is_known else missing_resource(str(error), temporary)
            if cause is None:
                raise
            causes[f"{experiment.name}.{name}"] = cause
            progress.not_measured(name, cause)
            if launcher.is_full():
                break
        else:
            progress.ended(name, runs[name])
            keep(runs)
    return runs, causes


def with_spread(
    run: Run, name: str, experiment: Experiment, launcher: Launcher, progress: Progress
) -> Run:
    """The run, with a `spread` measured by two more timed passes if a training on CPU that ended.

    Each is under other instruction sets; by the spread the values of another processor are judged
    (`traces/tolerance.py`). No time of these passes is kept. Other runs return as they are.
    """
    declaration, place = experiment.runs[name], launcher.place_of(experiment.runs[name])
    has_ended = run.status in ("completed", "diverged") and "timed" in run.passes
    is_of_times = run.nature != "real" or declaration.own_network or declaration.follows
    has_floats = any(isinstance(value, float) for value in leaves(run).values())
    if place.device != "cpu" or is_of_times or not (has_ended and has_floats):
        return run
    others = []
    for values in INSTRUCTION_SETS:
        watch = progress.watcher(name, f"timed, {values[0]} instructions")
        launcher.instructions = dict(zip(VARIABLES, values, strict=True))
        try:
            result = launcher.run_pass(experiment, name, "timed", watch)
        finally:
            launcher.instructions = {}
        others.append(gather(declaration, {"timed": result}, place, oversubscribed=False))
    return run.model_copy(update={"spread": spread_of(run, others)})


def measure_alone(
    experiment: Experiment, name: str, launcher: Launcher, progress: Progress
) -> Trace:
    """Measure one run and return its trace, not written; LaunchError or OSError as `measure`."""
    code, is_short = code_of(experiment.name), experiment.is_short
    if launcher.device == "cpu":
        launcher.most_bytes = machine.available_bytes()
    progress.begin(experiment)
    run = measure_run(launcher, experiment, name, progress)
    under, runs, asks = machine.circumstances(), {name: run}, experiment.question
    return trace_of(experiment.name, asks, code, under, machine.name(), runs, shortened=is_short)

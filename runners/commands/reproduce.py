"""`python -m runners reproduce`: measure values of a page again, and compare.

In: paths such as `large_model.wide_single.ranks[0].memory.peak_bytes`, as pages and `show` print
them; for a value computed from many fields, pages name the run alone, for a table of runs the
experiment. Out: for each path the page's value, the new one, the tolerance, and "same", "differs"
or "not compared"; of a run, what differs.
Each run is measured once, and nothing of the book is written.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from proofbook.runners.commands.compare import compare
from proofbook.runners.core.declared.experiment import check_name, find, runs_named
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.measuring.measure import VARIABLES, alone, measure_run
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.fields import (
    Steps,
    has_value_at,
    in_words,
    quantity,
    steps_of,
    value_at,
)
from proofbook.runners.core.trace.records import NO_TORCH, Machine, Run, Trace
from proofbook.runners.plain import measure as plain
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.book import is_plain
from proofbook.runners.system.errors import FixableError, unknown
from proofbook.runners.system.kinds import kinds
from proofbook.runners.traces import files
from proofbook.runners.traces.files import read, read_machine
from proofbook.runners.traces.summary import how_it_ended
from proofbook.runners.traces.tolerance import Agreement, compare_field

_say = partial(print, flush=True)
VERDICTS = {True: "same", False: "differs", None: "not compared"}


@dataclass
class Requested:
    """The runs and fields of one experiment that are measured again."""

    trace: Trace  # of the experiment, as the pages show it
    machine: Machine | None  # that measured the trace; None where nothing was measured
    again: Any = None  # the module of a companion that computes it again
    # Run and steps by path; a run without steps is compared whole.
    paths: dict[str, tuple[str, Steps]] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of all runs that are needed."""
        return tuple(dict.fromkeys(run for run, _ in self.paths.values()))

    def otherwise_here(self) -> Iterator[str]:
        """Yield a line for each fact in which this machine differs from the one that measured."""
        used = self.trace.circumstances.torch
        pairs = {} if used == NO_TORCH else {"torch": (used, machine.installed("torch"))}
        if self.machine is not None:
            pairs["processor"] = (self.machine.cpu, machine.cpu_name())
            pairs["number of cores"] = (str(self.machine.num_cores), str(machine.num_cores()))
            pairs["caches"] = (self.machine.caches, machine.caches())
        pairs |= {name: ("not set", os.environ.get(name, "not set")) for name in VARIABLES}
        for name, (there, here) in pairs.items():
            if there != here:
                yield f"{name} was {there} there, is {here} here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    add = parser.add_argument
    add("paths", nargs="+", metavar="EXPERIMENT[.RUN[.FIELD]]", help="as pages print them")
    add("--from", dest="on", metavar="MACHINE", help="whose trace the page shows, if another's")


def main(arguments: argparse.Namespace) -> int:
    """Measure or simulate again, and print comparisons; returns 1 if any differs, else 0."""
    experiments = requested(arguments.paths, machine.folder_of(arguments.on))
    verdicts: list[bool | None] = []
    held = alone() if any(wanted.machine for wanted in experiments) else nullcontext()
    with held, Launcher(accelerator.kind()) as launcher:
        for wanted in experiments:
            if wanted.again:
                measured = wanted.again.runs_again(wanted.trace.experiment, wanted.runs)
            else:
                measured = _measured(wanted, launcher, Progress())
            verdicts += _compared(wanted, measured)
    compared = [is_same for is_same in verdicts if is_same is not None]
    if len(compared) > 1:
        _say(f"{sum(compared)} of {len(compared)} are the same")
    return 0 if all(compared) else 1


def requested(paths: Sequence[str], folder: Path) -> list[Requested]:
    """A `Requested` for each experiment of the paths; a path without a run: all but skipped runs.

    FixableError where a path leads nowhere in this folder; TraceError for an unreadable trace.
    """
    experiments: dict[str, Requested] = {}
    for path in paths:
        experiment, run, *steps = f"{path}.".split(".", 2)
        if experiment not in experiments:
            experiments[experiment] = _of_page(experiment, folder)
        wanted = experiments[experiment]
        if run and run not in wanted.trace.runs:
            raise unknown(f"run of {experiment}", run, wanted.trace.runs)
        if not run:
            runs = wanted.trace.runs
            done = (name for name in runs if runs[name].status != "skipped")
            wanted.paths |= {f"{experiment}.{name}": (name, ()) for name in done}
        else:
            wanted.paths[path] = run, _steps(path, wanted.trace.runs[run]) if any(steps) else ()
    return list(experiments.values())


def _of_page(experiment: str, folder: Path) -> Requested:
    """An experiment as pages show it, with nothing requested of it yet."""
    for kind in kinds():
        again = kind.take(kind.again) if kind.again else None
        if again and (trace := again.trace_of(experiment)):
            return Requested(trace, None, again)
    check_name(experiment)
    path = folder / f"{experiment}.json"
    if not path.exists():
        raise FixableError(f"{folder.name} has not measured {experiment}; --from names another")
    return Requested(read(path), read_machine(folder))


def _steps(path: str, run: Run) -> Steps:
    """The steps of a path from its run to a field; FixableError where it leads nowhere."""
    if run.is_plain and path.split(".")[2] == "measures":
        path = path.replace(".measures", ".ranks[0].measures", 1)
    try:
        _, _, *steps = steps_of(path)
    except ValueError as error:
        raise FixableError(str(error)) from None
    if not has_value_at(run, steps):
        raise FixableError(f"the page's run has no value at {path}")
    if isinstance(record := value_at(run, steps), BaseModel):
        fields = ", ".join(type(record).model_fields)
        raise FixableError(f"{path} holds several values; name one of its fields: {fields}")
    return tuple(steps)


def _measured(wanted: Requested, launcher: Launcher, progress: Progress) -> dict[str, Run]:
    name = wanted.trace.experiment
    loaded = launcher.fitted(find(name))
    runs_named(f"{name}.{run}" for run in wanted.runs)  # one of the page may be gone
    picked = replace(loaded, runs={run: loaded.runs[run] for run in wanted.runs})
    progress.begin(picked)
    runs: dict[str, Run] = {}
    for name_of_run in wanted.runs:
        if is_plain(name):
            run = plain.measure_run(picked, name_of_run)
        else:
            run = measure_run(launcher, picked, name_of_run, progress, runs)
        progress.ended(name_of_run, run)
        if run.status == "skipped":
            raise FixableError(f"{name}.{name_of_run} cannot run here: {run.reason}")
        runs[name_of_run] = run
    return runs


def _compared(page: Requested, measured: dict[str, Run]) -> Iterator[bool | None]:
    """Print the comparison of each path; yield whether its values are the same."""
    if (page.again or files).is_stale(page.trace):
        _say(f"note: the code of {page.trace.experiment} has changed since the page was made")
    for line in page.otherwise_here():
        _say(f"note: {line}")
    for path, (run, steps) in page.paths.items():
        new = measured[run]
        lines, is_same = _of_field(page, run, steps, new) if steps else _of_run(page, run, new)
        _say("\n  ".join([path, *lines, VERDICTS[is_same]]))
        yield is_same


def _of_run(page: Requested, name: str, new: Run) -> tuple[list[str], bool]:
    """The lines of the comparison of a whole run, and whether it is the same."""
    old, experiment = page.trace.runs[name], page.trace.experiment
    # Of one digest, so that runs of changed code are compared too; the note has said that.
    there, here = (
        {experiment: page.trace.model_copy(update={"runs": {name: run}})} for run in (old, new)
    )
    difference = compare(there, here)
    is_same = difference.is_none and not difference.left_out
    return ["the page | here", *difference.lines()], is_same


def _of_field(page: Requested, run: str, steps: Steps, new: Run) -> tuple[list[str], bool | None]:
    """The lines of the comparison of a field, and whether it is the same."""
    old = page.trace.runs[run]
    unit = quantity(steps, old.quantities).unit
    where = page.machine.name if page.machine else "simulated"
    here, agreement = f"none: {how_it_ended(new)}", Agreement("none; a value", is_same=False)
    if has_value_at(new, steps):
        is_like = old.device == new.device and not any(page.otherwise_here())
        here = in_words(value_at(new, steps), unit)
        agreement = compare_field(steps, old, new, is_like=is_like)
    return [
        f"page       {in_words(value_at(old, steps), unit)} ({where}, {page.trace.recorded_at})",
        f"here       {here}",
        f"tolerance  {agreement.allowed}",
    ], agreement.is_same

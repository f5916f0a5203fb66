"""`python -m runners reproduce`: one value of a page measured again, and what became of it.

In: paths such as `large_model.wide_single.ranks[0].memory.peak_bytes`, as pages and `show` print
them; `[]` stands for every element of a list. Out: for each path the page's value, the new one, the
tolerance, and "same" or "differs". Each run is measured once. Without a field, a whole run or
experiment is compared as `compare` does. Nothing of the book is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runners.measuring.launch import Launcher
from runners.measuring.measure import alone, measure_run
from runners.measuring.progress import Progress
from runners.planning import grid, published
from runners.plans.experiment import find, names, nearest
from runners.system.errors import FixableError
from runners.traces import machine, published_plans
from runners.traces.compare import compare
from runners.traces.fields import Key, at, below, in_words, measure_of, steps_of
from runners.traces.files import (
    is_stale,
    machine_folders,
    read,
    read_grid,
    read_machine,
    read_published,
)
from runners.traces.machine_records import Machine
from runners.traces.plan_grid import PREFIX, as_trace, experiment_of
from runners.traces.plan_grid import is_stale as is_stale_plan
from runners.traces.records import Run, Trace
from runners.traces.summary import bytes_in_words, how_it_ended, seconds_in_words
from runners.traces.tolerance import Tolerance, tolerance

NO_VALUE = (KeyError, IndexError, AttributeError, TypeError)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """One field to measure again: its path, and its steps from the run."""

    path: str
    run: str
    steps: tuple[Key, ...]


@dataclass(frozen=True)
class Page:
    """What the pages show of one experiment: the trace, and the machine that measured it.

    Plans were simulated, and have no machine.
    """

    trace: Trace
    machine: Machine | None

    @property
    def made_with(self) -> dict[str, str]:
        """What else than chance may keep values apart."""
        torch = {"torch": self.trace.circumstances.torch}
        if self.machine is None:
            return torch
        cores = str(self.machine.num_cores)
        return {"processor": self.machine.cpu, "number of cores": cores, **torch}


@dataclass
class Requested:
    """What is wanted of one experiment: runs as a whole, and single fields."""

    page: Page
    whole: list[str] = field(default_factory=list)
    fields: list[Wanted] = field(default_factory=list)

    @property
    def runs(self) -> tuple[str, ...]:
        """Every run that it takes, each once."""
        return tuple(dict.fromkeys([*self.whole, *(one.run for one in self.fields)]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="EXPERIMENT.RUN.FIELD",
        help="as pages and `show` print them; [] is every element; without a field, all of a run",
    )
    parser.add_argument(
        "--from",
        dest="on",
        metavar="MACHINE",
        help="whose trace the page shows; by default the reference machine's",
    )


def main(arguments: argparse.Namespace) -> int:
    """Measure again; 0 where everything is the same."""

    def say(line: str) -> None:
        print(line, flush=True)

    wanted = requested(arguments.paths, folder_of(arguments.on))
    verdicts: list[bool] = []
    for one in wanted:
        if one.page.machine is None:
            verdicts += _compared(one, _simulated(one), say)
    if any(one.page.machine for one in wanted):
        with alone(), Launcher(machine.device_kind()) as launcher:
            for one in wanted:
                if one.page.machine is not None:
                    verdicts += _compared(one, _measured(one, launcher, Progress()), say)
    if len(verdicts) > 1:
        say(f"{sum(verdicts)} of {len(verdicts)} are the same")
    return 0 if all(verdicts) else 1


def _compared(one: Requested, measured: dict[str, Run], say: Say) -> Iterator[bool]:
    """Say what became of the runs and fields of an experiment; whether each is the same."""
    if _is_stale(one.page):
        say(f"note: the code of {one.page.trace.experiment} has changed since the page was made")
    here = _here()
    for name, was in one.page.made_with.items():
        if was != here[name]:
            say(f"note: {name} was {was} there, is {here[name]} here")
    if one.whole:
        yield _as_a_whole(one, measured, say)
    for wanted in one.fields:
        yield _verdict(wanted, one.page, measured[wanted.run], say)


def requested(paths: Sequence[str], folder: Path) -> list[Requested]:
    """What the paths name, by experiment.

    Raises:
        FixableError: a path leads nowhere in the traces of this folder.
        TraceError: a trace cannot be read.
    """
    found: dict[str, Requested] = {}
    for path in paths:
        experiment, *rest = path.split(".", 2)
        if experiment not in found:
            found[experiment] = Requested(_page(experiment, folder))
        wanted = found[experiment]
        trace = wanted.page.trace
        if rest and rest[0] not in trace.runs:
            known = ", ".join(trace.runs)
            hint = nearest(rest[0], trace.runs)
            raise FixableError(f"no run {rest[0]!r} in {experiment}{hint}; there are: {known}")
        if len(rest) == 2:
            wanted.fields += _wanted(path, trace)
        else:
            wanted.whole += rest or trace.runs
    return list(found.values())


def folder_of(on: str | None) -> Path:
    """The folder of a machine's traces, by default of the reference machine.

    Raises:
        FixableError: there is none of that name.
    """
    known = machine_folders(machine.TRACES)
    name = on or next((name for name in known if name.startswith("reference-")), "")
    if name not in known:
        there_are = ", ".join(known) or "none"
        raise FixableError(f"no machine {name!r}{nearest(name, known)}; there are: {there_are}")
    return machine.TRACES / name


def _page(experiment: str, folder: Path) -> Page:
    if experiment.startswith(PREFIX):
        return _planned(experiment)
    if experiment not in names():
        hint = nearest(experiment, names())
        raise FixableError(f"no experiment {experiment!r}{hint}; `list` names them")
    path = folder / f"{experiment}.json"
    if not path.exists():
        raise FixableError(f"{folder.name} has not measured {experiment}; --from names another")
    return Page(read(path), read_machine(folder))


def _planned(experiment: str) -> Page:
    rows = read_published(published.PATH)
    if rows and experiment == published_plans.EXPERIMENT:
        return Page(published_plans.as_trace(rows), None)
    plans = {experiment_of(path.stem): path for path in sorted(grid.PLANS.glob("*.json"))}
    if experiment not in plans:
        known, hint = ", ".join(plans) or "none yet", nearest(experiment, plans)
        raise FixableError(f"no plans called {experiment!r}{hint}; there are: {known}")
    return Page(as_trace(read_grid(plans[experiment])), None)


def _simulated(wanted: Requested) -> dict[str, Run]:
    name = wanted.page.trace.experiment
    if name == published_plans.EXPERIMENT:
        return published.again(wanted.runs)
    return grid.again(name, wanted.runs)


def _wanted(path: str, trace: Trace) -> list[Wanted]:
    """The fields that a path stands for in the page's trace."""
    found, nowhere = [], None
    for one in _each(path, trace):
        try:
            _, run, *steps = steps_of(one)
            _follow(steps, trace.runs[str(run)], one)
            found.append(Wanted(one, str(run), tuple(steps)))
        except ValueError as error:  # of `[]`, elements that lack the rest are passed over
            nowhere = FixableError(str(error))
    if nowhere and not found:
        raise nowhere
    return found


def _each(path: str, trace: Trace) -> Iterator[str]:
    """A path for each element of the first list that is written `[]`, and so on below."""
    before, brackets, after = path.partition("[]")
    if not brackets:
        yield path
        return
    try:
        _, run, *steps = steps_of(before)
        many = at(trace.runs[str(run)], steps)
    except (ValueError, *NO_VALUE):
        many = None
    if not isinstance(many, list):
        yield f"{before}{after}"  # it leads nowhere, and the one who follows it says where it ends
        return
    for position in range(len(many)):
        yield from _each(f"{before}[{position}]{after}", trace)


def _follow(steps: Sequence[Key], run: Run, path: str) -> None:
    """See that steps lead to a value of a run.

    Raises:
        FixableError: they lead nowhere in this run, with the nearest that does not.
    """
    thing: Any = run
    for key in steps:
        known = below(thing)
        try:
            thing = at(thing, [key])
        except NO_VALUE:
            thing = None
        if thing is None:
            why = f"{key!r} is empty" if str(key) in known else f"no {key!r}"
            hint = nearest(str(key), known) if str(key) not in known else ""
            raise FixableError(f"the page's run has no value at {path}: {why}{hint}")


def _measured(wanted: Requested, launcher: Launcher, progress: Progress) -> dict[str, Run]:
    name = wanted.page.trace.experiment
    loaded = launcher.fitted(find(name))
    gone = [run for run in wanted.runs if run not in loaded.runs]
    if gone:
        raise FixableError(f"the code of {name} has no run {gone[0]!r} any more")
    picked = replace(loaded, runs={run: loaded.runs[run] for run in wanted.runs})
    progress.begin(picked)
    found: dict[str, Run] = {}
    for run in wanted.runs:
        found[run] = measure_run(launcher, picked, run, progress, found)
        progress.ended(run, found[run])
        if found[run].status == "skipped":
            raise FixableError(f"{name}.{run} cannot run here: {found[run].reason}")
    return found


def _is_stale(page: Page) -> bool:
    if page.trace.experiment == published_plans.EXPERIMENT:
        return page.trace.code.digest != published_plans.code_digest()
    return is_stale_plan(page.trace) if page.machine is None else is_stale(page.trace)


def _here() -> dict[str, str]:
    import torch

    cores = str(machine.num_cores())
    return {
        "processor": machine.cpu_name(), "number of cores": cores, "torch": str(torch.__version__),
    }  # fmt: skip


def _verdict(one: Wanted, page: Page, new: Run, say: Say) -> bool:
    """Say what became of one field, and whether it is the same."""
    old = page.trace.runs[one.run]
    where = page.machine.name if page.machine else "simulated"
    say(one.path)
    say(f"  page       {said(old, one.steps)} ({where}, {page.trace.recorded_at})")
    try:
        is_there = at(new, one.steps) is not None
    except NO_VALUE:
        is_there = False
    if is_there:
        is_like = old.device == new.device and page.made_with.items() <= _here().items()
        judged = tolerance(one.steps, old, new, is_like=is_like)
        say(f"  here       {said(new, one.steps)}")
    else:
        judged = Tolerance("none; a value", is_same=False)
        say(f"  here       no value: {how_it_ended(new)}")
    say(f"  tolerance  {judged.words}")
    say("  same" if judged.is_same else "  differs")
    return judged.is_same


def said(run: Run, steps: tuple[Key, ...]) -> str:
    """A value of a run with all its digits, and a single number rounded as people say it too."""
    value = at(run, steps)
    exact = in_words(value, steps)
    measure = measure_of(steps)
    if isinstance(value, str | bool | list | dict) or measure is None:
        return exact or "none"
    round_one = bytes_in_words(value) if measure == "bytes" else seconds_in_words(value)
    return f"{round_one} = {exact}"


def _as_a_whole(wanted: Requested, measured: dict[str, Run], say: Say) -> bool:
    """Compare whole runs as two machines are, and whether nothing differs."""
    shown, name = wanted.page.trace, wanted.page.trace.experiment
    here, there = ({run: by[run] for run in wanted.whole} for by in (measured, shown.runs))
    # Of one digest, so that runs of changed code are compared too; the note has said that.
    found = compare(
        {name: shown.model_copy(update={"runs": there})},
        {name: shown.model_copy(update={"runs": here})},
    )
    say(f"{name}: {', '.join(wanted.whole)} (the page | here)")
    for line in found.lines():
        say(f"  {line}")
    say("  same" if found.is_none else "  differs")
    return found.is_none

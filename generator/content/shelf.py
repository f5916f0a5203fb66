"""The machines' folders under `content/traces/`: who measured what, and whose numbers are shown.

In: the folder of content and which machine is asked for. Out: every machine with its traces, the
one whose numbers the pages show first and the reference machine next; and each experiment as pages
show it, whole from the first that has measured it. What cannot be read is an error of the book.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from generator.content import prose
from generator.content.claim import Reference
from generator.content.content_files import Files, found_in
from generator.content.errors import ContentError, nearest
from runners.plans.experiment import command_for
from runners.traces import files as traces
from runners.traces import published, values
from runners.traces.files import NOT_TRACES
from runners.traces.machine_records import Machine, Primitives
from runners.traces.plan_grid import PREFIX, Grid, as_trace
from runners.traces.records import Run, Trace

NO_FOLDER = "no such machine; `machine:` and PROOFBOOK_MACHINE name a folder of traces/: "
NO_MACHINE = "no machine has measured yet; run `make traces`"
NONE_COMMITTED = "the commit holds no machine's folder, and a published book shows no other"
NOT_COMMITTED = (
    "not in the commit, and a published book shows no other machine; `git add --force` its "
    "JSON files and commit them, or choose another machine"
)
IsStale = Callable[[Trace], bool]
PROGRAMS = "listings"  # the experiment that runs the listed programs and keeps what they print
REFERENCE = "reference-*"  # what the reference machine's folder is called


def is_of_no_machine(experiment: str, nature: str) -> bool:
    """Whether a run says nothing about its machine: it was simulated, or keeps what is printed."""
    return nature == "simulated" or experiment == PROGRAMS


def is_stale(trace: Trace) -> bool:
    """Whether the code of a trace's experiment has changed since."""
    is_plan = trace.experiment.startswith(PREFIX)
    return published.is_stale(trace) if is_plan else traces.is_stale(trace)


@dataclass(frozen=True)
class TraceOnPage:
    """A trace and how a book shows it.

    Attributes:
        trace: all runs of one experiment on one machine.
        machine: the machine that measured it; its folder's name is `machine.name`.
        is_fallback: taken whole from another machine, because the book's own has none.
        is_stale: the experiment's code has changed since.
        reference: the reference machine's trace of the same experiment, where there is one.
        lent: the runs that this trace lacks or skipped, as another machine measured them.
        grid: the committed plans of a model that these are: simulated, measured on no machine.
    """

    trace: Trace
    machine: Machine
    is_fallback: bool = False
    is_stale: bool = False
    reference: Trace | None = None
    lent: TraceOnPage | None = None
    grid: Grid | None = None

    @property
    def runs(self) -> dict[str, Run]:
        """All runs by name, also those that another machine lends."""
        return {**self.trace.runs, **(self.lent.runs if self.lent else {})}

    def holder(self, run: str) -> TraceOnPage:
        """Where a run of this name is read: here, or in what another machine lends."""
        return self.lent.holder(run) if self.lent and run in self.lent.runs else self

    def machine_of(self, run: str) -> str:
        """The machine that measured a run; empty where it says nothing about any machine."""
        holder = self.holder(run)
        found = holder.trace.runs.get(run)
        if holder.is_plan or (found and is_of_no_machine(self.trace.experiment, found.nature)):
            return ""
        return holder.machine.name

    @property
    def is_plan(self) -> bool:
        """Whether it was simulated for a plan, and so on no machine."""
        return self.trace.experiment.startswith(PREFIX)

    @property
    def file(self) -> str:
        """The file that it was read from, below the content."""
        if self.grid:
            return f"planner/plans/{self.grid.preset}.json"
        if self.is_plan:
            return f"planner/{self.trace.experiment}.json"
        return f"traces/{self.machine.name}/{self.trace.experiment}.json"

    @property
    def page(self) -> str:
        """The page of its runs, from the site's root."""
        return page_of(self.trace.experiment)

    @property
    def raw(self) -> str:
        """Where the site keeps the file that it was read from."""
        if self.is_plan:
            return f"plans/{self.trace.experiment}.json"
        return f"traces/{self.machine.name}/{self.trace.experiment}.json"

    @property
    def measured_on(self) -> str:
        """The machine that measured it; empty for plans, which were simulated."""
        return "" if self.is_plan else self.machine.name


@dataclass(frozen=True)
class Measured:
    """A machine's folder under `traces/`.

    Attributes:
        machine: what it is.
        traces: what it measured itself, by experiment.
        stale: the experiments whose code has changed since.
        primitives: what it computes and communicates in how long; None where it did not measure.
        altered: files that are not as they were measured, each with why, as lines.
    """

    machine: Machine
    traces: dict[str, Trace]
    stale: frozenset[str] = frozenset()
    primitives: Primitives | None = None
    altered: tuple[str, ...] = ()


@dataclass
class Shelf:
    """The folders of one content folder.

    Attributes:
        files: of the content.
        is_stale: tells whether the code of a trace's experiment has changed since.
        only: the folders that may be shown; all of them where it is None.
        with_new: what none of them has measured comes from this machine's own folder.
    """

    files: Files
    is_stale: IsStale
    only: Collection[str] | None = None
    with_new: bool = False

    @property
    def folder(self) -> Path:
        """Where the machines' folders are."""
        return self.files.content / "traces"

    def machines(self, requested: str | None) -> dict[str, Measured]:
        """Every machine: the one to show first, then the reference machine, then the others.

        Args:
            requested: the folder to show; by default PROOFBOOK_MACHINE, then the name in
                traces/this-machine, then the reference machine. Where only some folders may be
                shown, `this-machine` is not asked.
        """
        known = traces.machine_folders(self.folder)
        shown = [one for one in known if self._may_show(one)]
        reference, own = self.reference_name, self._own_name(known)
        name = requested or os.environ.get("PROOFBOOK_MACHINE")
        name = name or (own if self.only is None else None) or reference
        if name is None:
            self.files.refuse(self.folder, NO_MACHINE if self.only is None else NONE_COMMITTED)
            return {}
        if name not in shown:
            there = f"{NO_FOLDER}{', '.join(known) or 'there is none yet'}"
            problem = there if self._may_show(name) else NOT_COMMITTED
            folder = f"{self.files.name(self.folder)}/{name}"
            self.files.errors.append(ContentError(folder, 0, 0, problem))
            return {}
        names = dict.fromkeys((name, *([reference] if reference else []), *shown))
        found = {one: read for one in names if (read := self._measured(one))}
        if name not in found:  # without it there is nothing to show
            return {}
        if self.with_new and own and not self._may_show(own):
            found |= self._new_here(own, found)
        return found

    def _new_here(self, own: str, known: Mapping[str, Measured]) -> dict[str, Measured]:
        """This machine's own folder where it may not be shown: the runs that no other has."""
        measured = self._measured(own)
        if measured is None:
            return {}
        kept = {}
        for name, trace in measured.traces.items():
            old = (one.traces[name] for one in known.values() if name in one.traces)
            runs = set(trace.runs).difference(*(one.runs for one in old))
            if runs and name not in measured.stale:
                kept[name] = _with_runs(trace, runs)
        altered = (line for line in measured.altered if Path(line.partition(":")[0]).stem in kept)
        return {own: Measured(measured.machine, kept, altered=tuple(altered))} if kept else {}

    def first_two(
        self, machines: Mapping[str, Measured]
    ) -> tuple[Measured | None, Measured | None]:
        """The machine whose numbers are shown, and the reference machine, which may be the same."""
        shown = next(iter(machines.values()), None)
        return shown, machines.get(self.reference_name or "", shown) if shown else None

    def on_pages(self, machines: Mapping[str, Measured]) -> dict[str, TraceOnPage]:
        """Every experiment, each whole from the first machine that has measured it."""
        shown, reference = self.first_two(machines)
        if shown is None or reference is None:
            return {}
        measured = sorted({experiment for one in machines.values() for experiment in one.traces})
        found = {name: on_page(name, machines.values(), reference) for name in measured}
        return {name: one for name, one in found.items() if one} | self._plans(shown.machine)

    def published_references(self) -> dict[str, Reference]:
        """A citation of each published number, with the number."""
        found = (one for trace in self._published() for one in _published_references(trace))
        return {one.id: one for one in found}

    def _published(self) -> Iterator[Trace]:
        """What is computed of published numbers."""
        for name in published.COMPARISONS:
            path = self.files.content / "planner" / f"{name}.json"
            if path.exists() and (trace := self.files.trying(traces.read, path)):
                yield trace

    def _plans(self, machine: Machine) -> dict[str, TraceOnPage]:
        """The committed plans of each preset, as pages of any machine show them."""
        found = {}
        for path in found_in(self.files.content / "planner" / "plans", "*.json"):
            if grid := self.files.trying(traces.read_grid, path):
                trace = as_trace(grid)
                found[grid.experiment] = TraceOnPage(
                    trace, machine, is_stale=self.is_stale(trace), grid=grid
                )
        for trace in self._published():
            found[trace.experiment] = TraceOnPage(trace, machine, is_stale=self.is_stale(trace))
        return found

    @property
    def reference_name(self) -> str | None:
        """The reference machine's folder, where it may be shown."""
        found = sorted(path.parent.name for path in self.folder.glob(f"{REFERENCE}/machine.json"))
        return next(filter(self._may_show, found), None)

    def _may_show(self, name: str) -> bool:
        return self.only is None or name in self.only

    def _own_name(self, known: Collection[str]) -> str | None:
        """The folder that this machine measured into last."""
        note = self.folder / "this-machine"
        name = (self.files.trying(self.files.text_of, note) or "") if note.exists() else ""
        return name.strip() if name.strip() in known else None

    def _measured(self, name: str) -> Measured | None:
        """What a machine's folder holds; None where it does not say which machine it is."""
        folder, trying = self.folder / name, self.files.trying
        machine = trying(traces.read_machine, folder)
        if machine is None:
            return None
        self._check_name(folder / "machine.json", "name", machine.name)
        experiments = {path.stem for path in found_in(folder, "*.json")} - NOT_TRACES
        found = {}
        for experiment in sorted(experiments):
            if trace := trying(traces.read, folder / f"{experiment}.json"):
                self._check_trace(folder / f"{experiment}.json", trace)
                found[experiment] = trace
        stale = frozenset(one for one, trace in found.items() if self.is_stale(trace))
        primitives = trying(traces.read_primitives, folder)
        if primitives:
            self._check_name(folder / "primitives.json", "machine", primitives.machine)
        faults = trying(lambda one: list(values.faults(one)), folder) or ()
        altered = tuple(f"{self.files.name(folder)}/{file}: {why}" for file, why in faults)
        return Measured(machine, found, stale, primitives, altered)

    def _check_trace(self, path: Path, trace: Trace) -> None:
        """Refuse what no page may show: its question stands in prose, its names in addresses."""
        self._check_name(path, "machine", trace.machine)
        for _, word in prose.numerals(trace.question):
            said = f"bare numeral {word!r}; the experiment's QUESTION asks without a number"
            self.files.refuse(path, f"question: {said}")

    def _check_name(self, path: Path, field: str, name: str) -> None:
        """Numbers must not pass for another machine's: a file says where it was measured."""
        folder = path.parent.relative_to(self.folder).as_posix()
        if name != folder:
            self.files.refuse(path, f"{field}: is {name!r}, the folder says {folder!r}")


def _published_references(trace: Trace) -> Iterator[Reference]:
    """A citation of each number that was published of the rows of a trace."""
    for name, row in trace.runs.items():
        about = {key: str(row.settings.get(key, "")) for key in ("where", "url")}
        for kind, number in published.published_bytes_of(row):
            yield Reference(
                id=published.reference_of(name, kind),
                title=str(row.settings["case"]),
                says=f"{row.settings[f'field_{kind}']}.",
                value=number,
                unit="bytes",
                **about,
            )
        rate = row.settings.get("rate")
        if isinstance(rate, float):
            unit, model, devices = (row.settings[key] for key in ("unit", "model", "devices"))
            yield Reference(
                id=published.reference_of(name),
                title=str(row.settings["title"]),
                says=f"{unit} of each device: {model}, {devices} devices.",
                value=rate,
                unit="plain",
                **about,
            )


def page_of(experiment: str) -> str:
    """The page of an experiment's runs, or of a preset's plans, from the site's root."""
    if experiment.startswith(PREFIX):
        return f"plan/{experiment.removeprefix(PREFIX)}.html"
    return f"evidence/{experiment}.html"


def on_page(
    experiment: str, machines: Iterable[Measured], reference: Measured
) -> TraceOnPage | None:
    """An experiment as pages of the first of some machines show it.

    Args:
        experiment: its name.
        machines: the machine shown, and those that stand in where it lacks the experiment.
        reference: the reference machine.

    Returns:
        None where none of them has measured it. Of a machine that is neither the one shown nor the
        reference machine, a stale trace does not count.
    """
    shown, *others = machines
    usable = (one for one in others if one is reference or experiment not in one.stale)
    holders = [one for one in (shown, *usable) if experiment in one.traces]
    found: TraceOnPage | None = None
    for one in reversed(holders):
        trace = one.traces[experiment]
        found = TraceOnPage(
            trace=trace,
            machine=one.machine,
            is_fallback=one is not shown,
            is_stale=experiment in one.stale,
            reference=reference.traces.get(experiment),
            lent=_lent(found, trace, reference.machine.name) if found else None,
        )
    return found


def _lent(other: TraceOnPage, trace: Trace, reference: str) -> TraceOnPage | None:
    """What another machine lends: the runs that a trace lacks, and those that it skipped.

    A run that was skipped comes from the reference machine alone.
    """
    further = _lent(other.lent, trace, reference) if other.lent else None
    is_reference = other.machine.name == reference
    runs = {
        name
        for name, run in other.trace.runs.items()
        if name not in trace.runs
        or (is_reference and trace.runs[name].status == "skipped" != run.status)
    }
    if not runs:
        return further
    lending = other if is_reference else replace(other, reference=None)
    return replace(lending, trace=_with_runs(other.trace, runs), lent=further)


def _with_runs(trace: Trace, names: Collection[str]) -> Trace:
    """A trace with only these of its runs."""
    runs = {name: run for name, run in trace.runs.items() if name in names}
    return trace.model_copy(update={"runs": runs})


def no_trace(experiment: str, traces: Mapping[str, TraceOnPage]) -> str:
    """That no machine has measured an experiment as it is, and how to, or which one is meant."""
    said = f"no trace of {experiment!r} on any machine"
    command = command_for(experiment)
    return (
        f"{said}, or only a stale one; run `{command}`"
        if command
        else f"{said}{nearest(experiment, traces)}"
    )


def missing_run(traces: Mapping[str, TraceOnPage], path: str) -> str | None:
    """Why a run path leads nowhere; a run that only the reference machine has is not a mistake."""
    experiment, _, name = path.partition(".")
    shown = traces.get(experiment)
    if shown is None:
        return no_trace(experiment, traces)
    if name in shown.runs or (shown.reference and name in shown.reference.runs):
        return None
    return f"{experiment} has no run {name!r}{nearest(name, shown.trace.runs)}"

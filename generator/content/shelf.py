"""The machines' folders under `content/traces/`: who measured what, and whose numbers are shown.

In: the folder of content and which machine is asked for. Out: every machine with its traces, the
one whose numbers the pages show first and the reference machine next; and each experiment as pages
show it, whole from the first that has measured it. What cannot be read is an error of the book.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from generator.content import content_files, prose
from generator.content.claim import Reference
from generator.content.content_files import FileError
from generator.content.errors import ContentError, nearest
from generator.content.once import once
from generator.content.words import MAX_LINE
from runners.plans.experiment import command_for
from runners.traces import files as traces
from runners.traces import published_plans, values
from runners.traces.files import NOT_TRACES, TraceError
from runners.traces.machine_records import Machine
from runners.traces.plan_grid import PREFIX, Grid, as_trace
from runners.traces.plan_grid import is_stale as is_stale_plan
from runners.traces.primitives import Primitives
from runners.traces.published_plans import FILE as PUBLISHED
from runners.traces.published_plans import (
    PublishedPeak,
    PublishedPlan,
    PublishedPlans,
    reference_of,
)
from runners.traces.records import Run, Trace

RecordT = TypeVar(
    "RecordT", Machine, Trace, Grid, PublishedPlans | None, Primitives | None, tuple[str, ...],
)  # fmt: skip
NO_FOLDER = "no such machine; `machine:` and PROOFBOOK_MACHINE name a folder of traces/: "
NO_MACHINE = "no machine has measured yet; run `make traces`"
NONE_COMMITTED = "the commit holds no machine's folder, and a published book shows no other"
NOT_COMMITTED = (
    "not in the commit, and a published book shows no other machine; `git add --force` its "
    "JSON files and commit them, or choose another machine"
)
IsStale = Callable[[Trace], bool]
_NAME = re.compile(r"[a-z0-9_]+")
PROGRAMS = "listings"  # the experiment that runs the listed programs and keeps what they print
REFERENCE = "reference-*"  # what the reference machine's folder is called


def is_of_no_machine(experiment: str, nature: str) -> bool:
    """Whether a run says nothing about its machine: it was simulated, or keeps what is printed."""
    return nature == "simulated" or experiment == PROGRAMS


def is_stale(trace: Trace) -> bool:
    """Whether the code of a trace's experiment has changed since."""
    if trace.experiment == published_plans.EXPERIMENT:
        return trace.code.digest != published_plans.code_digest()
    if trace.experiment.startswith(PREFIX):
        return is_stale_plan(trace)
    return traces.is_stale(trace)


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
        published: the simulations of published measurements that these are, likewise.
    """

    trace: Trace
    machine: Machine
    is_fallback: bool = False
    is_stale: bool = False
    reference: Trace | None = None
    lent: TraceOnPage | None = None
    grid: Grid | None = None
    published: PublishedPlans | None = None

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
        return bool(self.grid or self.published)

    @property
    def file(self) -> str:
        """The file that it was read from, below the content."""
        if self.grid:
            return f"planner/plans/{self.grid.preset}.json"
        if self.published:
            return PUBLISHED
        return f"traces/{self.folder}/{self.trace.experiment}.json"

    @property
    def page(self) -> str:
        """The page of its runs, from the site's root."""
        return page_of(self.trace.experiment)

    @property
    def raw(self) -> str:
        """Where the site keeps the file that it was read from."""
        if self.is_plan:
            return f"plans/{self.trace.experiment}.json"
        return f"traces/{self.folder}/{self.trace.experiment}.json"

    @property
    def folder(self) -> str:
        """The folder under `traces/` that holds it."""
        return self.machine.name


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
        content: the folder of content.
        is_stale: tells whether the code of a trace's experiment has changed since.
        errors: where mistakes are put.
        only: the folders that may be shown; all of them where it is None.
        with_new: what none of them has measured comes from this machine's own folder.
    """

    content: Path
    is_stale: IsStale
    errors: list[ContentError]
    only: Collection[str] | None = None
    with_new: bool = False

    @property
    def folder(self) -> Path:
        """Where the machines' folders are."""
        return self.content / "traces"

    def machines(self, requested: str | None) -> dict[str, Measured]:
        """Every machine: the one to show first, then the reference machine, then the others.

        Args:
            requested: the folder to show; by default PROOFBOOK_MACHINE, then the name in
                traces/this-machine, then the reference machine. Where only some folders may be
                shown, `this-machine` is not asked.
        """
        name, reference = self._chosen(requested), self._reference_name()
        if name is None:
            self._refuse(self.folder, NO_MACHINE if self.only is None else NONE_COMMITTED)
            return {}
        if not self._may_show(name):
            self._refuse_folder(name, NOT_COMMITTED)
            return {}
        folders = [one for one in traces.machine_folders(self.folder) if self._may_show(one)]
        names = dict.fromkeys((name, *([reference] if reference else []), *folders))
        found = {one: self._measured(one) for one in names}
        if found[name] is None:  # without it there is nothing to show
            return {}
        known = {one: measured for one, measured in found.items() if measured is not None}
        return known | (self._new_here(known) if self.with_new else {})

    def _new_here(self, known: Mapping[str, Measured]) -> dict[str, Measured]:
        """This machine's own folder where it may not be shown: the runs that no other has."""
        own = self._own_name()
        if own is None or self._may_show(own):
            return {}
        folder = self.folder / own
        machine = self._trying(traces.read_machine, folder)
        old = [one.traces for one in known.values()]
        new = {name: _lacking(trace, old) for name, trace in self._traces(folder).items()}
        kept = {name: one for name, one in new.items() if one.runs and not self.is_stale(one)}
        if machine is None or not kept:
            return {}
        faults = self._trying(self._altered, folder) or ()
        altered = tuple(line for line in faults if Path(line.partition(":")[0]).stem in kept)
        return {own: Measured(machine, kept, altered=altered)}

    def first_two(
        self, machines: Mapping[str, Measured]
    ) -> tuple[Measured | None, Measured | None]:
        """The machine whose numbers are shown, and the reference machine, which may be the same."""
        if not machines:
            return None, None
        shown = next(iter(machines.values()))
        return shown, machines.get(self._reference_name() or "", shown)

    def on_pages(self, machines: Mapping[str, Measured]) -> dict[str, TraceOnPage]:
        """Every experiment, each whole from the first machine that has measured it."""
        shown, reference = self.first_two(machines)
        if shown is None or reference is None:
            return {}
        measured = sorted({experiment for one in machines.values() for experiment in one.traces})
        found = {name: on_page(name, machines.values(), reference) for name in measured}
        return {name: one for name, one in found.items() if one is not None}

    def published_references(self) -> dict[str, Reference]:
        """A citation of each published number, with the number."""
        found = self._trying(traces.read_published, self.content / PUBLISHED)
        cited = [] if found is None else [_reference(r, p) for r in found.rows for p in r.peaks]
        return {one.id: one for one in cited}

    def plans(self, machine: Machine) -> dict[str, TraceOnPage]:
        """The committed plans of each preset, as pages of any machine show them."""
        found = {}
        for path in content_files.found_in(self.content / "planner" / "plans", "*.json"):
            grid = self._trying(traces.read_grid, path)
            if grid is not None:
                trace = once(as_trace, grid)
                stale = self.is_stale(trace)
                found[grid.experiment] = TraceOnPage(trace, machine, is_stale=stale, grid=grid)
        published = self._trying(traces.read_published, self.content / PUBLISHED)
        if published is not None:
            trace = once(published_plans.as_trace, published)
            stale = self.is_stale(trace)
            found[trace.experiment] = TraceOnPage(
                trace, machine, is_stale=stale, published=published
            )
        return found

    def _reference_name(self) -> str | None:
        return next(filter(self._may_show, self._folders(REFERENCE)), None)

    def _folders(self, called: str) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob(f"{called}/machine.json"))

    def _may_show(self, name: str) -> bool:
        return self.only is None or name in self.only

    def _chosen(self, requested: str | None) -> str | None:
        name = requested or os.environ.get("PROOFBOOK_MACHINE")
        if name:
            return name
        own = self._own_name() if self.only is None else None
        return own or self._reference_name()

    def _own_name(self) -> str | None:
        """The folder that this machine measured into last."""
        note, name = self.folder / "this-machine", ""
        if note.exists():
            try:
                name = content_files.text_of(note).strip()
            except FileError as error:
                place = (self._name(note), error.line, error.column)
                self.errors.append(ContentError(*place, str(error)))
        return name if name in traces.machine_folders(self.folder) else None

    def _measured(self, name: str) -> Measured | None:
        folder = self.folder / name
        if name not in traces.machine_folders(self.folder):
            known = ", ".join(traces.machine_folders(self.folder)) or "there is none yet"
            self._refuse_folder(name, f"{NO_FOLDER}{known}")
            return None
        machine = self._trying(traces.read_machine, folder)
        if machine is None:
            return None
        self._check_name(folder / "machine.json", "name", machine.name)
        found = self._traces(folder)
        stale = frozenset(one for one, trace in found.items() if self.is_stale(trace))
        primitives = self._trying(traces.read_primitives, folder)
        if primitives:
            self._check_name(folder / "primitives.json", "machine", primitives.machine)
        altered = self._trying(self._altered, folder) or ()
        return Measured(machine, found, stale, primitives, altered)

    def _altered(self, folder: Path) -> tuple[str, ...]:
        """The files of a folder that are not as they were measured, each with why."""
        return tuple(f"{self._name(folder)}/{file}: {why}" for file, why in values.faults(folder))

    def _traces(self, folder: Path) -> dict[str, Trace]:
        """The traces of a machine's folder by experiment."""
        found_in = content_files.found_in(folder, "*.json")
        experiments = sorted({path.stem for path in found_in} - NOT_TRACES)
        read_off = {one: self._trace(folder / f"{one}.json") for one in experiments}
        return {one: trace for one, trace in read_off.items() if trace is not None}

    def _trace(self, path: Path) -> Trace | None:
        trace = self._trying(traces.read, path)
        if trace:
            self._check_name(path, "machine", trace.machine)
            for problem in _unfit_for_pages(trace):
                self._refuse(path, problem)
        return trace

    def _check_name(self, path: Path, field: str, name: str) -> None:
        """Numbers must not pass for another machine's: a file says where it was measured."""
        folder = path.parent.relative_to(self.folder).as_posix()
        if name != folder:
            self._refuse(path, f"{field}: is {name!r}, the folder says {folder!r}")

    def _refuse_folder(self, name: str, message: str) -> None:
        """Refuse a machine that somebody asked for, whatever they called it."""
        self.errors.append(ContentError(f"{self._name(self.folder)}/{name}", 0, 0, message))

    def _refuse(self, path: Path, message: str) -> None:
        self.errors.append(ContentError(self._name(path), 0, 0, message))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.content.parent).as_posix()

    def _trying(self, read_one: Callable[[Path], RecordT], path: Path) -> RecordT | None:
        """What is read from a file, or from a folder that it is looked for in; None if refused."""
        try:
            return read_one(path)
        except TraceError as error:
            root = f"{self.content.parent.as_posix()}/"
            name, _, message = str(error).partition(": ")
            self.errors.append(ContentError(name.removeprefix(root), 0, 0, message))
            return None


def _reference(row: PublishedPlan, peak: PublishedPeak) -> Reference:
    is_request = row.path.startswith("pull request ")
    place = f"pull/{row.path.split()[-1]}" if is_request else f"blob/{row.commit}/{row.path}"
    return Reference(
        id=reference_of(row.id, peak.kind),
        title=row.case,
        where=f"{row.repository}, commit {row.commit[:10]}, {row.path}",
        url=f"https://github.com/{row.repository}/{place}",
        says=f"{peak.field}.",
        value=peak.measured_bytes,
        unit="bytes",
    )


def _unfit_for_pages(trace: Trace) -> Iterator[str]:
    """What a trace says that no page may: its question stands in prose, its names in addresses."""
    if not _NAME.fullmatch(trace.experiment):
        yield "experiment: a name is made of small letters, digits and _"
    for name in trace.runs:
        if not _NAME.fullmatch(name):
            yield f"runs.{name}: a run's name is made of small letters, digits and _"
    if len(trace.question) > MAX_LINE:
        yield f"question: longer than {MAX_LINE:,} characters"
    for fault in prose.hidden(trace.question):
        yield f"question: {fault.message}"
    for _, word in prose.numerals(trace.question):
        yield f"question: bare numeral {word!r}; the experiment's QUESTION asks without a number"


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
    if not holders:
        return None
    found = None
    for one in reversed(holders):
        trace = one.traces[experiment]
        found = TraceOnPage(
            trace=trace,
            machine=one.machine,
            is_fallback=one is not shown,
            is_stale=experiment in one.stale,
            reference=reference.traces.get(experiment),
            lent=_lent(found, trace, reference) if found else None,
        )
    return found


def _lent(other: TraceOnPage, trace: Trace, reference: Measured) -> TraceOnPage | None:
    """What another machine lends: the runs that a trace lacks, and those that it skipped.

    A run that was skipped comes from the reference machine alone.
    """
    further = _lent(other.lent, trace, reference) if other.lent else None
    is_reference = other.machine.name == reference.machine.name
    runs = {
        name: run
        for name, run in other.trace.runs.items()
        if name not in trace.runs
        or (is_reference and trace.runs[name].status == "skipped" != run.status)
    }
    if not runs:
        return further
    lending = other if is_reference else replace(other, reference=None)
    return replace(lending, trace=other.trace.model_copy(update={"runs": runs}), lent=further)


def _lacking(trace: Trace, known: Iterable[Mapping[str, Trace]]) -> Trace:
    """A trace with only those of its runs that none of some machines has."""
    old = {name for one in known if trace.experiment in one for name in one[trace.experiment].runs}
    runs = {name: run for name, run in trace.runs.items() if name not in old}
    return trace.model_copy(update={"runs": runs})


def no_trace(experiment: str, traces: Mapping[str, TraceOnPage]) -> str:
    """That no machine has measured an experiment, and how to, or which one is meant."""
    said = f"no trace of {experiment!r} on any machine"
    command = command_for(experiment)
    return f"{said}; run `{command}`" if command else f"{said}{nearest(experiment, traces)}"


def missing_run(traces: Mapping[str, TraceOnPage], path: str) -> str | None:
    """Why a run path leads nowhere; a run that only the reference machine has is not a mistake."""
    experiment, _, name = path.partition(".")
    shown = traces.get(experiment)
    if shown is None:
        return no_trace(experiment, traces)
    if name in shown.runs or (shown.reference and name in shown.reference.runs):
        return None
    return f"{experiment} has no run {name!r}{nearest(name, shown.trace.runs)}"

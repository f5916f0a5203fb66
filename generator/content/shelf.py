"""The machines' folders under `content/traces/`: who measured what, and whose numbers are shown.

In: the folder of content and which machine is asked for. Out: every machine with its traces, the
one whose numbers the pages show first and the reference machine next; and for each experiment the
trace that stands for it, with the one that lends it runs. What cannot be read is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from proofbook.generator.content import numerals
from proofbook.generator.content.errors import Files, visible_files
from proofbook.runners.core.trace.machine import machine_folders
from proofbook.runners.core.trace.records import Machine, Run, Trace
from proofbook.runners.system.book import experiments_in, own_book, program
from proofbook.runners.system.kinds import kinds
from proofbook.runners.traces import files as traces
from proofbook.runners.traces.files import MACHINE

NO_FOLDER = (
    "no such machine; `machine:` and PROOFBOOK_MACHINE name a folder of traces/ that `{}` wrote, "
    "and of a published book one that is committed: "
)
IsStale = Callable[[Trace], bool]
PROGRAMS = "listings"  # the experiment that runs the listed programs and keeps what they print
REFERENCE = "reference-*"  # what the reference machine's folder is called


def measure_command(names: str = "", *, full: bool = False) -> str:
    """The shell command to measure `names`, or all: `make traces …`, or `proofbook run …`."""
    if program("") == "":
        words = ["make traces", "FULL=1" if full else "", f"NAMES='{names}'" if names else ""]
    else:
        words = ["proofbook run", names, "--full" if full else ""]
    return " ".join(filter(None, words))


def is_of_no_machine(experiment: str, nature: str) -> bool:
    """Whether a run is about no machine: it was simulated, a listed program, or graded."""
    of_kinds = (name for kind in kinds() for name in kind.of_no_machine)
    return nature == "simulated" or experiment in (PROGRAMS, *of_kinds)


@dataclass(frozen=True)
class TraceOnPage:
    """A trace and how a book shows it."""

    trace: Trace  # all runs of one experiment on one machine
    machine: Machine  # the machine that measured it; its folder's name is `machine.name`
    is_stale: bool = False  # the experiment's code has changed since
    reference: Trace | None = None  # the reference machine's trace of the same experiment
    # By run that this machine lacks or skipped, the trace of another that lends it.
    lent: Mapping[str, TraceOnPage] = field(default_factory=dict)
    # Of one that no machine measured: whether its runs are simulated, or computed.
    nature: Literal["", "simulated", "computed"] = ""
    own_page: str = ""  # of its runs, where that is no page of evidence
    held: Any = None  # what the companion that brings it keeps with it
    file: str = ""  # that it was read from, below the content, and below the site's root

    @property
    def runs(self) -> dict[str, Run]:
        """All runs by name, also those that another machine lends."""
        lent = {name: self.lent[name].trace.runs[name] for name in sorted(self.lent)}
        return self.trace.runs | lent

    def holder(self, run: str) -> TraceOnPage:
        """The trace that holds a run: this one, or the one that lends it."""
        return self.lent.get(run, self)

    def machine_of(self, run: str) -> str:
        """Name of the machine that measured a run; empty where a run is of none."""
        holder = self.holder(run)
        measured = holder.trace.runs.get(run)
        if holder.nature or (measured and is_of_no_machine(self.trace.experiment, measured.nature)):
            return ""
        return holder.machine.name

    @property
    def page(self) -> str:
        """The page of its runs, from the site's root."""
        return self.own_page or page_of(self.trace.experiment)

    @property
    def measured_on(self) -> str:
        """The machine that measured it; empty where none did."""
        return "" if self.nature else self.machine.name


@dataclass(frozen=True, eq=False)
class MachineFolder:
    """A machine's folder under `traces/`."""

    machine: Machine
    traces: dict[str, Trace]  # what it measured itself, by experiment
    stale: frozenset[str] = frozenset()  # the experiments whose code has changed since


@dataclass
class Shelf:
    """The folders of one content folder."""

    files: Files
    is_stale: IsStale  # tells whether the code of a trace's experiment has changed since
    only: Collection[str] | None = None  # the folders that may be shown; None: all of them
    with_new: bool = False  # what none of them has measured comes from this machine's own folder

    @property
    def folder(self) -> Path:
        """The folder `traces/`."""
        return self.files.content / "traces"

    def machines(self, requested: str | None) -> dict[str, MachineFolder]:
        """`MachineFolder`s by name: shown, reference, others; {} if the shown folder is missing.

        By default the first is that of PROOFBOOK_MACHINE, then that of traces/this-machine, unless
        only some folders may be shown, then the reference machine.
        """
        known = list(filter(self._may_show, machine_folders(self.folder)))
        reference, own = self.reference_name, self._own_name()
        name = requested or os.environ.get("PROOFBOOK_MACHINE")
        name = name or (own if self.only is None else None) or reference
        if name not in known:
            problem = NO_FOLDER.format(measure_command())
            problem += ", ".join(known) or "there is none yet"
            folder = self.folder / name if name else self.folder
            is_one = bool(name) and folder.is_dir()
            if not is_one or self.files.read_or_refuse(traces.read_machine, folder) is not None:
                self.files.refuse(folder, problem)
            return {}
        names = dict.fromkeys((name, *filter(None, [reference]), *known))
        folders = {key: held for key in names if (held := self._measured(key))}
        if name not in folders:  # without it there is nothing to show
            return {}
        if self.with_new and own and own not in folders:
            folders |= self._new_here(own, folders)
        if self.only is not None and reference and reference in folders:
            new = [name for key in folders.keys() - self.only for name in folders[key].traces]
            self._check_whole(self.folder / reference, new)
        return folders

    def _check_whole(self, folder: Path, new: Collection[str]) -> None:
        """Report experiments that the reference machine lacks, except those new on this machine."""
        folders = [""] if own_book() else ["runners/", "companions/*/"]
        patterns = (f"{folder}experiments/[!_]*.py" for folder in folders)
        programs = (
            path for at in patterns for path in visible_files(self.files.content.parent, at)
        )
        names = [name for program in programs for name in experiments_in(program)]
        for path in (folder / f"{name}.json" for name in names if name not in new):
            if not path.exists():
                self.files.refuse(path, f"no such file; {traces.remedy(path)}")

    def _new_here(self, own: str, known: Mapping[str, MachineFolder]) -> dict[str, MachineFolder]:
        """Runs of this machine that no other has, for where its folder may not be shown."""
        measured = self._measured(own)
        if measured is None:
            return {}
        others = [pair for folder in known.values() for pair in folder.traces.items()]
        old = {(experiment, run) for experiment, trace in others for run in trace.runs}
        new = {}
        for experiment, trace in measured.traces.items():
            runs = {name: run for name, run in trace.runs.items() if (experiment, name) not in old}
            if runs and experiment not in measured.stale:
                new[experiment] = trace.model_copy(update={"runs": runs})
        return {own: replace(measured, traces=new)} if new else {}

    @property
    def reference_name(self) -> str | None:
        """The reference machine's folder, where it may be shown."""
        names = sorted(path.parent.name for path in self.folder.glob(f"{REFERENCE}/machine.json"))
        return next(filter(self._may_show, names), None)

    def _may_show(self, name: str) -> bool:
        return self.only is None or name in self.only

    def _own_name(self) -> str | None:
        """The folder that this machine measured into last."""
        note = self.folder / "this-machine"
        name = note.read_text(encoding="utf-8", errors="replace").strip() if note.exists() else ""
        return name if name in machine_folders(self.folder) else None

    def _measured(self, name: str) -> MachineFolder | None:
        """What a machine's folder holds; None where it does not say which machine it is."""
        folder, read_or_refuse = self.folder / name, self.files.read_or_refuse
        machine = read_or_refuse(traces.read_machine, folder)
        if machine is None:
            return None
        self._check_name(folder / "machine.json", "name", machine.name)
        experiments = {path.stem for path in visible_files(folder, "*.json")} - {MACHINE}
        measured = {}
        for experiment in sorted(experiments):
            if trace := read_or_refuse(traces.read, folder / f"{experiment}.json"):
                self._check_name(folder / f"{experiment}.json", "machine", trace.machine)
                for _, word in numerals.numerals(trace.question):
                    message = f"question: bare numeral {word!r}; QUESTION asks without a number"
                    self.files.refuse(folder / f"{experiment}.json", message)
                measured[experiment] = trace
        stale = frozenset(name for name, trace in measured.items() if self.is_stale(trace))
        return MachineFolder(machine, measured, stale)

    def _check_name(self, path: Path, field: str, name: str) -> None:
        """Report a file whose machine is not that of its folder."""
        if name != path.parent.name:
            self.files.refuse(path, f"{field}: is {name!r}, the folder says {path.parent.name!r}")


def page_of(experiment: str) -> str:
    """The path of the page of an experiment's runs."""
    return f"evidence/{experiment}.html"


def standing(machines: Sequence[MachineFolder], reference: MachineFolder) -> dict[str, TraceOnPage]:
    """By experiment, the trace that stands for it in a book, and the runs that another one lends.

    That of the first machine stands, which is the one shown, or else that of the next. Of a machine
    that is neither the first nor the reference machine, a stale trace does not count.
    """
    stale_too, traces = (machines[0], reference), {}
    for experiment in sorted({name for folder in machines for name in folder.traces}):
        pages = [
            TraceOnPage(
                trace=folder.traces[experiment],
                machine=folder.machine,
                is_stale=experiment in folder.stale,
                reference=reference.traces.get(experiment) if folder in stale_too else None,
                file=f"traces/{folder.machine.name}/{experiment}.json",
            )
            for folder in machines
            if experiment in folder.traces
            and (folder in stale_too or experiment not in folder.stale)
        ]
        if pages:
            traces[experiment] = replace(pages[0], lent=dict(_lent(*pages)))
    return traces


def _lent(own: TraceOnPage, *others: TraceOnPage) -> Iterator[tuple[str, TraceOnPage]]:
    """Yield pairs: a run that a trace lacks, and the first other that has it.

    The reference machine also lends the runs that were skipped.
    """
    known = dict(own.trace.runs)
    for other in others:
        is_reference = other.trace is own.reference
        for name, run in other.trace.runs.items():
            if name not in known or (is_reference and known[name].status == "skipped"):
                known[name] = run
                yield name, other

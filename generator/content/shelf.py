"""The machines' folders under `content/traces/`: who measured what, and whose numbers are shown.

In: the folder of content and which machine is asked for. Out: every machine with its traces, the
one whose numbers the pages show first and the reference machine next; and each experiment as pages
show it, whole from one of these two. What cannot be read is an error of the book.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from generator.content.errors import ContentError, nearest
from runners.plans.declarations import difference
from runners.traces import files as traces
from runners.traces import values
from runners.traces.files import NOT_TRACES, TraceError
from runners.traces.machine_records import Machine
from runners.traces.prediction import Prediction
from runners.traces.records import Trace

RecordT = TypeVar("RecordT", Machine, Trace, Prediction | None, tuple[str, ...])
NO_FOLDER = "no such machine; `machine:` and PROOFBOOK_MACHINE name a folder of traces/: "
NO_MACHINE = "no machine has measured yet; run `make traces`"
NONE_COMMITTED = "the commit holds no machine's folder, and a published book shows no other"
NOT_COMMITTED = (
    "not in the commit, and a published book shows no other machine; `git add --force` its "
    "JSON files and commit them, or choose another machine"
)
IsStale = Callable[[Trace], bool]
REFERENCE = "reference-*"  # what the reference machine's folder is called


def is_stale(trace: Trace) -> bool:
    """Whether the code of a trace's experiment has changed since, or what it declares differs."""
    return traces.is_stale(trace) or difference(trace) is not None


@dataclass(frozen=True)
class TraceOnPage:
    """A trace and how a book shows it.

    Attributes:
        trace: all runs of one experiment on one machine.
        machine: the machine that measured it; its folder's name is `machine.name`.
        is_fallback: taken whole from the reference machine, because this one has none.
        is_stale: the experiment's code has changed since.
        reference: the reference machine's trace of the same experiment, where there is one.
    """

    trace: Trace
    machine: Machine
    is_fallback: bool = False
    is_stale: bool = False
    reference: Trace | None = None

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
        stale: the experiments whose code has changed since, or that declare otherwise.
        prediction: what it predicted of itself before it measured; None where it did not.
        altered: files that are not as they were measured, each with why, as lines.
        unlisted: the experiments whose digest nobody kept, so that no edit of theirs is noticed.
    """

    machine: Machine
    traces: dict[str, Trace]
    stale: frozenset[str] = frozenset()
    prediction: Prediction | None = None
    altered: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


@dataclass
class Shelf:
    """The folders of one content folder.

    Attributes:
        content: the folder of content.
        is_stale: tells whether the code of a trace's experiment has changed since.
        errors: where mistakes are put.
        only: the folders that may be shown; all of them where it is None.
    """

    content: Path
    is_stale: IsStale
    errors: list[ContentError]
    only: Collection[str] | None = None

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
            self._refuse(self.folder / name, NOT_COMMITTED)
            return {}
        folders = [one for one in traces.machine_folders(self.folder) if self._may_show(one)]
        names = dict.fromkeys((name, *([reference] if reference else []), *folders))
        found = {one: self._measured(one) for one in names}
        if found[name] is None:  # without it there is nothing to show
            return {}
        return {one: measured for one, measured in found.items() if measured is not None}

    def first_two(
        self, machines: Mapping[str, Measured]
    ) -> tuple[Measured | None, Measured | None]:
        """The machine whose numbers are shown, and the reference machine, which may be the same."""
        if not machines:
            return None, None
        shown = next(iter(machines.values()))
        return shown, machines.get(self._reference_name() or "", shown)

    def on_pages(self, shown: Measured, reference: Measured) -> dict[str, TraceOnPage]:
        """Every experiment of the two, each whole from one of them."""
        return {
            experiment: on_page(experiment, shown, reference)
            for experiment in sorted({*shown.traces, *reference.traces})
        }

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
        note = self.folder / "this-machine"
        if note.is_file() and self.only is None:
            name = note.read_text(encoding="utf-8").strip()
            if name and (self.folder / name / "machine.json").is_file():
                return name
        return self._reference_name()

    def _measured(self, name: str) -> Measured | None:
        folder = self.folder / name
        if not (folder / "machine.json").is_file():
            known = ", ".join(traces.machine_folders(self.folder)) or "there is none yet"
            self._refuse(folder, f"{NO_FOLDER}{known}")
            return None
        machine = self._trying(traces.read_machine, folder)
        if machine is None:
            return None
        self._check_name(folder / "machine.json", "name", machine.name)
        experiments = sorted({path.stem for path in folder.glob("*.json")} - NOT_TRACES)
        read_off = {one: self._trace(folder / f"{one}.json") for one in experiments}
        found = {one: trace for one, trace in read_off.items() if trace is not None}
        stale = frozenset(one for one, trace in found.items() if self.is_stale(trace))
        prediction = self._trying(traces.read_prediction, folder)
        if prediction:
            self._check_name(folder / "prediction.json", "machine", prediction.machine)
        altered = self._trying(self._altered, folder) or ()
        unlisted = self._trying(_unlisted, folder) or ()
        return Measured(machine, found, stale, prediction, altered, unlisted)

    def _altered(self, folder: Path) -> tuple[str, ...]:
        """The files of a folder that are not as they were measured, each with why."""
        place = folder.relative_to(self.content.parent).as_posix()
        return tuple(f"{place}/{file}: {why}" for file, why in values.faults(folder))

    def _trace(self, path: Path) -> Trace | None:
        trace = self._trying(traces.read, path)
        if trace:
            self._check_name(path, "machine", trace.machine)
        return trace

    def _check_name(self, path: Path, field: str, name: str) -> None:
        """Numbers must not pass for another machine's: a file says where it was measured."""
        folder = path.parent.relative_to(self.folder).as_posix()
        if name != folder:
            self._refuse(path, f"{field}: is {name!r}, the folder says {folder!r}")

    def _refuse(self, path: Path, message: str) -> None:
        name = path.relative_to(self.content.parent).as_posix()
        self.errors.append(ContentError(name, 0, 0, message))

    def _trying(self, read_one: Callable[[Path], RecordT], path: Path) -> RecordT | None:
        try:
            return read_one(path)
        except TraceError as error:
            root = f"{self.content.parent.as_posix()}/"
            file, _, message = str(error).partition(": ")
            self.errors.append(ContentError(file.removeprefix(root), 0, 0, message))
            return None


def _unlisted(folder: Path) -> tuple[str, ...]:
    return tuple(values.lacks_list(folder))


def on_page(experiment: str, shown: Measured, reference: Measured) -> TraceOnPage:
    """An experiment as pages of one machine show it, which or whose reference has measured it."""
    holder = shown if experiment in shown.traces else reference
    return TraceOnPage(
        trace=holder.traces[experiment],
        machine=holder.machine,
        is_fallback=holder is not shown,
        is_stale=experiment in holder.stale,
        reference=reference.traces.get(experiment),
    )


def missing_run(traces: Mapping[str, TraceOnPage], path: str) -> str | None:
    """Why a run path leads nowhere; a run that only the reference machine has is not a mistake."""
    experiment, _, name = path.partition(".")
    shown = traces.get(experiment)
    if shown is None:
        return (
            f"no trace of {experiment!r} on any machine{nearest(experiment, traces)}; "
            f"or measure it with `python -m runners run {experiment}`"
        )
    if name in shown.trace.runs or (shown.reference and name in shown.reference.runs):
        return None
    return f"{experiment} has no run {name!r}{nearest(name, shown.trace.runs)}"

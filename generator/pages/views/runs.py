"""An experiment's own page: every run of it, on each machine that has measured it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from generator.evidence import units
from generator.evidence.calibration import outcome_of
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.value import Kind, Origin, Value
from runners.traces.records import Run, Trace


@dataclass(frozen=True)
class RunRow:
    """One run on one machine."""

    name: str
    id: str
    strategy: str
    nature: str
    ranks: Markup
    expected: str
    ended: str
    is_surprise: bool
    reason: str | None
    seconds: Markup
    step: Markup
    peak: Markup


@dataclass(frozen=True)
class RunsOnMachine:
    """An experiment on one machine."""

    machine: str
    is_reference: bool
    is_shown: bool
    is_stale: bool
    recorded_at: str
    torch: str
    digest: str
    backends: tuple[str, ...]  # over which runs communicate, where there are several
    rows: tuple[RunRow, ...]


def by_machine(experiment: str, folio: Folio) -> list[RunsOnMachine]:
    """Every machine's runs of an experiment; those that pages show first."""
    shown = folio.book.traces[experiment].machine.name
    having = [name for name, one in folio.book.machines.items() if experiment in one.traces]
    return [
        _on_machine(experiment, name, name == shown, folio)
        for name in sorted(having, key=lambda name: name != shown)
    ]


def anchor(path: str, folio: Folio) -> str:
    """Where the row of a run stands, from the site's root: on the machine that a section shows."""
    experiment, _, name = path.partition(".")
    machines = folio.book.machines.items()
    first = next((machine for machine, one in machines if experiment in one.traces), None)
    shown = folio.book.traces.get(experiment)
    place = f"evidence/{experiment}.html#run-{experiment}-{name}"
    if shown is None or first in (None, shown.machine.name):
        return place
    return f"{place}-on-{shown.machine.name}"


def _on_machine(experiment: str, name: str, is_shown: bool, folio: Folio) -> RunsOnMachine:
    measured = folio.book.machines[name]
    trace = measured.traces[experiment]
    return RunsOnMachine(
        machine=name,
        is_reference=name == folio.book.reference.name,
        is_shown=is_shown,
        is_stale=experiment in measured.stale,
        recorded_at=trace.recorded_at,
        torch=trace.circumstances.torch,
        digest=trace.code.digest,
        backends=_backends(trace),
        rows=tuple(_rows(trace, is_shown, folio)),
    )


def _backends(trace: Trace) -> tuple[str, ...]:
    """Each backend with its runs, as `gloo: one, two`; nothing where all runs share one."""
    by_backend: dict[str, list[str]] = {}
    for name, run in sorted(trace.runs.items()):
        if run.world_size > 1 and run.status != "skipped":
            by_backend.setdefault(run.backend, []).append(name)
    several = sorted(by_backend.items()) if len(by_backend) > 1 else []
    return tuple(f"{backend}: {', '.join(names)}" for backend, names in several)


def _rows(trace: Trace, is_shown: bool, folio: Folio) -> Iterator[RunRow]:
    words = folio.ui["statuses"]
    for name, run in sorted(trace.runs.items()):
        place = f"run-{trace.experiment}-{name}"
        most, at = outcome_of(run, "peak_bytes")
        step = run.timing.step.median_seconds if run.timing.step else None
        yield RunRow(
            name=name,
            id=place if is_shown else f"{place}-on-{trace.machine}",
            strategy=folio.strategy(run),
            nature=run.nature,
            ranks=_cell(run.world_size, units.COUNT, "world_size", trace, name, folio),
            expected=words[run.expected_status],
            ended=words[run.status],
            is_surprise=run.is_surprise,
            reason=run.reason,
            seconds=_cell(
                run.timing.wall_seconds, units.SECONDS, "timing.wall_seconds", trace, name, folio
            ),
            step=_cell(step, units.SECONDS, "timing.step.median_seconds", trace, name, folio),
            peak=_cell(most, units.BYTES, at, trace, name, folio),
        )


def _cell(
    number: float | None, unit: units.Unit, field: str, trace: Trace, name: str, folio: Folio
) -> Markup:
    """A number of a run, with its provenance, whichever machine measured it."""
    run = trace.runs[name]
    if number is None or (run.status == "skipped" and field != "world_size"):
        return ABSENT
    origin = Origin(
        trace.machine, trace.experiment, name, field, trace.recorded_at, trace.circumstances.torch,
        nature=run.nature,
    )  # fmt: skip
    formula = f"{trace.experiment}.{name}.{field}"
    return folio.show(Value(number, unit, _kind(field, run), formula, origin=origin))


def _kind(field: str, run: Run) -> Kind:
    if field == "world_size":
        return "given"
    return "simulated" if run.nature == "simulated" else "measured"

"""An experiment's own page: every run of it, on each machine that has measured it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from generator.evidence import units
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.regime import is_crowded, num_ranks
from generator.evidence.value import Kind, Origin, Value, computed
from generator.pages.shown import Shown
from runners.traces.records import Run, Trace
from runners.traces.skips import is_heavier


def by_machine(experiment: str, folio: Folio) -> list[Shown]:
    """Every machine's runs of an experiment; those that pages show first.

    A machine that skipped all of them comes last.
    """
    shown = folio.book.traces[experiment].machine.name
    having = [name for name, one in folio.book.machines.items() if experiment in one.traces]
    found = [_on_machine(experiment, name, name == shown, folio) for name in having]
    return sorted(found, key=lambda one: (not one.rows, not one.is_shown))


def _on_machine(experiment: str, name: str, is_shown: bool, folio: Folio) -> Shown:
    measured = folio.book.machines[name]
    trace = measured.traces[experiment]
    by_name = {row.name: row for row in _rows(trace, is_shown, folio)}
    rows = tuple(row for name, row in by_name.items() if trace.runs[name].status != "skipped")
    skipped = list(_skipped(trace, by_name, folio.ui))
    return Shown(
        machine=name,
        is_reference=name == folio.book.reference.name,
        is_shown=is_shown,
        is_stale=experiment in measured.stale,
        recorded_at=trace.recorded_at,
        torch=trace.circumstances.torch,
        digest=trace.code.digest,
        backends=_backends(trace),  # over which runs communicate, where there are several
        # The words of what any of its runs has measured.
        measures=tuple(
            word
            for word in (rows[0].measured if rows else ())
            if any(row.measured[word] != ABSENT for row in rows)
        ),
        rows=rows,
        skipped=skipped,
        num_skipped=sum(len(one.rows) for one in skipped),
    )


def _skipped(
    trace: Trace, by_name: Mapping[str, Shown], words: Mapping[str, Any]
) -> Iterator[Shown]:
    """What a machine skipped, by the reason; the one of most runs first."""
    by_reason: dict[str, list[Shown]] = {}
    for name, row in by_name.items():
        if trace.runs[name].status == "skipped":
            reason = _reason(trace.runs[name], trace.experiment, words)
            by_reason.setdefault(reason, []).append(row)
    for reason, rows in sorted(by_reason.items(), key=lambda one: -len(one[1])):
        yield Shown(reason=reason, rows=tuple(rows))


def _backends(trace: Trace) -> tuple[str, ...]:
    """Each backend with its runs, as `gloo: one, two`; nothing where all runs share one."""
    by_backend: dict[str, list[str]] = {}
    for name, run in sorted(trace.runs.items()):
        if run.world_size > 1 and run.status != "skipped":
            by_backend.setdefault(run.backend, []).append(name)
    several = sorted(by_backend.items()) if len(by_backend) > 1 else []
    return tuple(f"{backend}: {', '.join(names)}" for backend, names in several)


def _rows(trace: Trace, is_shown: bool, folio: Folio) -> Iterator[Shown]:
    words = folio.ui
    for name, run in sorted(trace.runs.items(), key=lambda one: _in_order(one[0])):
        place = f"run-{trace.experiment}-{name}"
        most, at = _peak(run)
        step = run.timing.step.median_seconds if run.timing.step else None
        payload = _largest_payload(trace, name)
        num = num_ranks(run)
        field = "world_size" if num == run.world_size else "settings.num_ranks"
        yield Shown(
            name=name,
            id=place if is_shown else f"{place}-on-{trace.machine}",
            # Where values of the run lead.
            short_id=name if is_shown else f"{name}-on-{trace.machine}",
            strategy=folio.strategy(run),
            nature=run.nature,
            ranks=_cell(num, units.COUNT, field, trace, name, folio),
            expected=words["statuses"][run.expected_status],
            ended=words["statuses"][run.status],
            is_surprise=run.is_surprise,
            measured={
                words["figure"]["peak"]: _cell(most, units.BYTES, at, trace, name, folio),
                words["runs"]["payload"]: ABSENT if payload is None else folio.show(payload),
                words["runs"]["step"]: _cell(
                    step, units.SECONDS, "timing.step.median_seconds", trace, name, folio
                ),
                words["runs"]["whole"]: _whole(trace, name, folio),
            },
        )


def _peak(run: Run) -> tuple[int | None, str]:
    """The peak of the fullest rank, and where it stands; None where nobody metered it."""
    peaks = [
        (one.memory.peak_bytes, f"ranks[{place}].memory.peak_bytes")
        for place, one in enumerate(run.ranks)
        if one.memory is not None and one.memory.peak_bytes is not None
    ]
    return max(peaks, key=lambda one: one[0], default=(None, ""))


def _largest_payload(trace: Trace, name: str) -> Value | None:
    """What the rank with the largest payload sends in one step; what it receives, others sent."""
    by_rank = [
        [
            _value(one.bytes, units.BYTES, f"ranks[{place}].collectives[{at}].bytes", trace, name)
            for at, one in enumerate(rank.collectives)
            if one.operation != "recv"
        ]
        for place, rank in enumerate(trace.runs[name].ranks)
    ]
    most = max(by_rank, key=_total, default=[])
    if not most:
        return None
    return computed(_total(most), units.BYTES, " + ".join(one.formula for one in most), tuple(most))


def _total(values: Sequence[Value]) -> int:
    return sum(int(one.number) for one in values)


def _reason(run: Run, experiment: str, words: Mapping[str, Any]) -> str:
    """Why a run was skipped; empty where its trace does not say."""
    heavier: str = words["runs"]["heavier"]
    reason = run.reason or ""
    return heavier.format(experiment=experiment) if is_heavier(reason) else reason


def _in_order(name: str) -> list[str | int]:
    """A key that sorts names as people do, so that `step_9` precedes `step_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _cell(
    number: float | None, unit: units.Unit, field: str, trace: Trace, name: str, folio: Folio
) -> Markup:
    """A number of a run, with its provenance, whichever machine measured it."""
    run = trace.runs[name]
    if number is None or run.status == "skipped":
        return ABSENT
    return folio.show(_value(number, unit, field, trace, name))


def _whole(trace: Trace, name: str, folio: Folio) -> Markup:
    """How long a run took, with no digit below the millisecond that its clock tells."""
    run, field = trace.runs[name], "timing.wall_seconds"
    seconds = run.timing.wall_seconds
    if seconds is None or run.status == "skipped":
        return ABSENT
    value = _value(seconds, units.SECONDS, field, trace, name)
    return folio.show(value.shown(digits=min(3, len(str(round(seconds * 1000))))))


def _value(number: float, unit: units.Unit, field: str, trace: Trace, name: str) -> Value:
    """A number of a run, read off its trace."""
    run, origin = trace.runs[name], _origin(trace, name, field)
    formula = f"{trace.experiment}.{name}.{field}"
    return Value(number, unit, _kind(field, run), formula, origin=origin)


def _origin(trace: Trace, name: str, field: str) -> Origin:
    run = trace.runs[name]
    return Origin(
        trace.machine, trace.experiment, name, field, trace.recorded_at, trace.circumstances.torch,
        nature=run.nature, is_crowded=is_crowded(run),
    )  # fmt: skip


def _kind(field: str, run: Run) -> Kind:
    if field in ("world_size", "settings.num_ranks"):
        return "given"
    return "simulated" if run.nature == "simulated" else "measured"

"""An experiment's own page: every run of it, on each machine that has measured it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from generator.content.shelf import TraceOnPage
from generator.evidence import units
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.regime import CROWDED, is_crowded, num_ranks
from generator.evidence.value import Value, computed, numeric
from generator.pages.shown import Shown
from runners.traces.records import Run, Trace


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
    shown = TraceOnPage(trace, measured.machine)
    evidence = Evidence(replace(folio.book, traces={experiment: shown}))
    by_name = {row.name: row for row in _rows(trace, is_shown, evidence, folio)}
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


def _rows(trace: Trace, is_shown: bool, evidence: Evidence, folio: Folio) -> Iterator[Shown]:
    words = folio.ui
    for name, run in sorted(trace.runs.items(), key=lambda one: _in_order(one[0])):
        place = f"run-{trace.experiment}-{name}"
        values = _Values(f"{trace.experiment}.{name}", run, evidence)
        # What the numbers of a row share stands once.
        nature = CROWDED if is_crowded(run) else "" if run.nature == "real" else run.nature
        page = folio.said_once(nature)
        num = "world_size" if num_ranks(run) == run.world_size else "settings.num_ranks"
        measured = {
            words["figure"]["peak"]: values.peak(),
            words["runs"]["payload"]: values.payload(),
            words["runs"]["step"]: values.of("timing.step.median_seconds"),
            words["runs"]["whole"]: values.whole(),
        }
        yield Shown(
            name=name,
            id=place if is_shown else f"{place}-on-{trace.machine}",
            # Where values of the run lead.
            short_id=name if is_shown else f"{name}-on-{trace.machine}",
            strategy=folio.strategy(run),
            nature=nature,
            ranks=page.shown(values.of(num)),
            expected=words["statuses"][run.expected_status],
            ended=words["statuses"][run.status],
            is_surprise=run.is_surprise,
            measured={word: page.shown(value) for word, value in measured.items()},
        )


class _Values(NamedTuple):
    """The values of one run, on the machine that measured it."""

    path: str
    run: Run
    evidence: Evidence

    def of(self, field: str) -> Value | None:
        """A field; None where the run did not measure it, or was skipped."""
        found = self.evidence.evaluate(f"{self.path}.{field}").result
        return found if isinstance(found, Value) and self.run.status != "skipped" else None

    def peak(self) -> Value | None:
        """The peak of the fullest rank."""
        ranks = range(len(self.run.ranks))
        peaks = [one for at in ranks if (one := self.of(f"ranks[{at}].memory.peak_bytes"))]
        return max(peaks, key=numeric, default=None)

    def payload(self) -> Value | None:
        """What the rank with the largest payload sends in a step; what it receives, others sent."""
        by_rank = [
            [
                value
                for at, one in enumerate(rank.collectives)
                if one.operation != "recv"
                and (value := self.of(f"ranks[{place}].collectives[{at}].bytes"))
            ]
            for place, rank in enumerate(self.run.ranks)
        ]
        most = max(by_rank, key=_total, default=[])
        formula = " + ".join(one.formula for one in most)
        return computed(_total(most), units.BYTES, formula, tuple(most)) if most else None

    def whole(self) -> Value | None:
        """How long the run took, with no digit below the millisecond that its clock tells."""
        found = self.of("timing.wall_seconds")
        return found and found.shown(digits=min(3, len(str(round(numeric(found) * 1000)))))


def _total(values: Sequence[Value]) -> float:
    return sum(map(numeric, values))


def _reason(run: Run, experiment: str, words: Mapping[str, Any]) -> str:
    """Why a run was skipped; empty where its trace does not say."""
    heavier: str = words["runs"]["heavier"]
    return heavier.format(experiment=experiment) if run.is_left_out else run.reason or ""


def _in_order(name: str) -> list[str | int]:
    """A key that sorts names as people do, so that `step_9` precedes `step_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

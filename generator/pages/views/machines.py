"""What machines are and what they measured: a page of each, and the runs of each experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from markupsafe import Markup

from generator.content.shelf import Measured, TraceOnPage
from generator.evidence import units
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.regime import CROWDED, is_crowded, num_ranks
from generator.evidence.units import Unit
from generator.evidence.value import Kind, Origin, Value, computed, numeric
from generator.pages.shown import Shown
from runners.traces.records import Run

MEASURED: Kind = "measured"
COMPUTED: Kind = "computed"
FACTS = (
    ("Processor", "cpu"), ("Cores", "num_cores"), ("Memory", "memory_bytes"),
    ("Caches of a core", "caches"), ("System", "system"), ("Python", "python"), ("torch", "torch"),
)  # fmt: skip
PRIMITIVES: tuple[tuple[str, Unit, str], ...] = (
    (r"matrix_flops_per_second", Unit(0, -1), "Operations of a matrix product"),
    (r"all_reduce_(\d+)_alpha_seconds", units.SECONDS, "Latency of an all_reduce, ranks: {n}"),
    (
        r"all_reduce_(\d+)_beta_seconds_per_byte",
        Unit(1, -1),
        "Payload rate of an all_reduce, ranks: {n}",
    ),
)


def facts(measured: Measured, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """What a machine is: the fields of `machine.json` that people read, with their provenance."""
    evidence, named = Evidence(replace(folio.book, machine=measured.machine)), [*FACTS]
    for place in range(len(measured.machine.accelerators)):
        at = f"accelerators[{place}]"
        named += [("Accelerator", f"{at}.name"), ("Its memory", f"{at}.memory_bytes")]
    for word, field in named:
        value = evidence.evaluate(f"machine.{field}").result
        if isinstance(value, Value) and value.number != "":  # some systems show no caches
            if field == "caches":  # the kernel's K are KiB
                value = replace(value, number=re.sub(r"(\d)K\b", r"\1 KiB", str(value.number)))
            yield word, folio.show(value)


def primitives(measured: Measured, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """The primitives of a machine, as far as people read their units."""
    found = measured.primitives.primitives if measured.primitives else {}
    for name, number in found.items():
        for pattern, unit, word in PRIMITIVES:
            told = re.fullmatch(pattern, name)
            if told and isinstance(number, float) and number > 0:
                field, kind, read = f"primitives[{name!r}]", MEASURED, number
                if name.endswith("_per_byte"):  # seconds a byte read better as bytes a second
                    field, kind, read = f"1 / {field}", COMPUTED, 1 / number
                origin = Origin(measured.machine.name, field=field)
                (num,) = told.groups() or ("1",)
                crowd = " (more than cores)" if int(num) > measured.machine.num_cores else ""
                value = Value(read, unit, kind, field, origin=origin)
                yield word.format(n=num) + crowd, folio.show(value)


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
    end, rows, skipped = "" if is_shown else f"-on-{name}", [], dict[str, list[Shown]]()
    for run_name, run in sorted(trace.runs.items(), key=lambda one: _in_order(one[0])):
        row = _row(f"{experiment}.{run_name}", run, end, evidence, folio)
        if run.status != "skipped":
            rows.append(row)
            continue
        heavier = folio.ui["runs"]["heavier"].format(experiment=experiment)
        skipped.setdefault(heavier if run.is_left_out else run.reason or "", []).append(row)
    return Shown(
        machine=name,
        is_shown=is_shown,
        is_stale=experiment in measured.stale,
        recorded_at=trace.recorded_at,
        torch=trace.circumstances.torch,
        digest=trace.code.digest,
        # The words of what any of its runs has measured.
        measures=[
            word for word in (rows[0].measured if rows else ())
            if any(row.measured[word] != ABSENT for row in rows)
        ],
        rows=rows,
        skipped=sorted(skipped.items(), key=lambda one: -len(one[1])),
        num_skipped=sum(map(len, skipped.values())),
    )  # fmt: skip


def _row(path: str, run: Run, end: str, evidence: Evidence, folio: Folio) -> Shown:
    """A run, with what it measured by its name in words."""
    name = path.partition(".")[2]
    # What the numbers of a row share stands once.
    nature = CROWDED if is_crowded(run) else "" if run.nature == "real" else run.nature
    page = folio.said_once(nature)
    num = "world_size" if num_ranks(run) == run.world_size else "settings.num_ranks"
    wall = _value(f"{path}.timing.wall_seconds", run, evidence)
    measured = {
        "Peak": max(_peaks(path, run, evidence), key=numeric, default=None),
        "Payload per step": _payload(path, run, evidence),
        "Step": _value(f"{path}.timing.step.median_seconds", run, evidence),
        # with no digit below the millisecond that its clock tells
        "Whole run": wall and wall.shown(digits=min(3, len(str(round(numeric(wall) * 1000))))),
    }
    return Shown(
        name=name,
        id=f"{name}{end}",
        strategy=folio.strategy(run),
        nature=nature,
        ranks=page.shown(_value(f"{path}.{num}", run, evidence)),
        expected=run.expected_status.replace("_", " "),
        ended=run.status.replace("_", " "),
        is_surprise=run.is_surprise,
        measured={word: page.shown(value) for word, value in measured.items()},
    )


def _value(expression: str, run: Run, evidence: Evidence) -> Value | None:
    """None where the run did not measure it, or was skipped."""
    found = evidence.evaluate(expression).result
    return found if isinstance(found, Value) and run.status != "skipped" else None


def _peaks(path: str, run: Run, evidence: Evidence) -> Iterator[Value]:
    for at in range(len(run.ranks)):
        if value := _value(f"{path}.ranks[{at}].memory.peak_bytes", run, evidence):
            yield value


def _payload(path: str, run: Run, evidence: Evidence) -> Value | None:
    """What the rank with the largest payload sends in a step; what it receives, others sent."""
    most: list[Value] = []
    for place, rank in enumerate(run.ranks):
        sent = [
            f"{path}.ranks[{place}].collectives[{at}].bytes"
            for at, one in enumerate(rank.collectives)
            if one.operation != "recv"
        ]
        values = [value for one in sent if (value := _value(one, run, evidence))]
        most = max(most, values, key=_total)
    formula = " + ".join(one.formula for one in most)
    return computed(_total(most), units.BYTES, formula, tuple(most)) if most else None


def _total(values: list[Value]) -> float:
    return sum(map(numeric, values))


def _in_order(name: str) -> list[str | int]:
    """A key that sorts names as people do, so that `step_9` precedes `step_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

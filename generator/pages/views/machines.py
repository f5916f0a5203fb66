"""What machines are and what they measured: a page of each, and the runs of each experiment."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from markupsafe import Markup

from generator.content.shelf import MachineFolder, TraceOnPage, measure_command
from generator.pages.view import View
from generator.printing.folio import ABSENT, Folio
from generator.values import units
from generator.values.evaluation import Evidence
from generator.values.regime import CROWDED, is_crowded, num_ranks
from generator.values.value import Value, computed, numeric
from runners.core.trace.fields import Key
from runners.core.trace.records import NO_TORCH, Run, software

FACTS = (
    ("Processor", "cpu"), ("Cores", "num_cores"), ("Memory", "memory_bytes"),
    ("Caches of a core", "caches"), ("System", "system"), ("Python", "python"), ("torch", "torch"),
)  # fmt: skip
HEAVIER = "Left out, to stay short; `{}` measures all runs."
DISAGREED = "meter and allocator disagreed, so its peak is no evidence"
LEAST = 3  # rows that share what a table need not repeat


def facts(measured: MachineFolder, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """Yield pairs: a field of a machine's `machine.json`, in words, and its value as HTML."""
    evidence = Evidence(replace(folio.book, machine=measured.machine))
    named: list[tuple[str, tuple[Key, ...]]] = [(word, (name,)) for word, name in FACTS]
    for place in range(len(measured.machine.accelerators)):
        at = "accelerators", place
        named += [("Accelerator", (*at, "name")), ("Its memory", (*at, "memory_bytes"))]
    for word, keys in named:
        value = evidence.reading("machine", *keys)
        # Some systems show no caches, and a machine may have no torch.
        if value and value.number not in ("", NO_TORCH):
            if word == "Caches of a core":  # the kernel's K are KiB
                value = replace(value, number=re.sub(r"(\d)K\b", r"\1 KiB", str(value.number)))
            yield word, folio.show(value)


def primitives(measured: MachineFolder, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """Yield pairs: a rate or latency that a machine measured, in words, and its value as HTML."""
    for run in ("compute_1", "communicate_2", "communicate_4"):
        if "primitives" in measured.traces and run in measured.traces["primitives"].runs:
            read = partial(_evidence("primitives", measured, folio).reading, f"primitives.{run}")
            for word, value in _computing(read) if run == "compute_1" else _sending(read):
                yield word, folio.show(value)


def _computing(read: partial[Value | None]) -> Iterator[tuple[str, Value]]:
    flops = read("ranks", 0, "measures", "num_flops")
    seconds = read("timing", "measures", "layer", "median_seconds")
    if flops and seconds:
        yield "Operations of a matrix product", flops / seconds


def _sending(read: partial[Value | None]) -> Iterator[tuple[str, Value]]:
    few, many = (read("settings", "sizes_bytes", place) for place in (0, 1))
    names = "all_reduce_4096", "all_reduce_16777216"
    soon, late = (read("timing", "measures", name, "median_seconds") for name in names)
    if few and many and soon and late:
        yield f"Latency of an all_reduce, {read('world_size')} ranks", soon
        yield f"Its payload rate, {read('world_size')} ranks", (many - few) / (late - soon)


def by_machine(experiment: str, folio: Folio) -> list[View]:
    """Runs of an experiment by machine: the page's own first, those that skipped all last."""
    having = [folder for folder in folio.book.machines.values() if experiment in folder.traces]
    views = [_on_machine(experiment, folder, folio) for folder in having]
    return sorted(views, key=lambda view: (not view.rows, not view.is_shown))


def _on_machine(experiment: str, measured: MachineFolder, folio: Folio) -> View:
    trace, machine = measured.traces[experiment], measured.machine
    is_shown = folio.book.traces[experiment].machine.name == machine.name
    evidence = _evidence(experiment, measured, folio)
    end = "" if is_shown else f"-on-{machine.name}"
    rows = [
        _row(f"{experiment}.{name}", run, end, evidence, folio)
        for name, run in sorted(trace.runs.items(), key=lambda pair: _numbers_apart(pair[0]))
    ]
    ran = [row for row in rows if row.ended != "skipped"]
    several = [row.nature for row in ran if row.num_ranks > 1]
    nature = CROWDED if len(several) >= LEAST and {*several} == {CROWDED} else ""
    ran = [row.copy_with(nature="") for row in ran] if nature else ran
    words = dict.fromkeys(word for row in ran for word in row.measured)
    ran = [row.copy_with(measured=dict.fromkeys(words, ABSENT) | row.measured) for row in ran]
    measures = [word for word in words if any(row.measured[word] != ABSENT for row in ran)]
    return View(
        machine=machine.name,
        is_shown=is_shown,
        is_stale=experiment in measured.stale,
        trace=trace,
        measures=measures,
        has_gaps=any(row.measured[word] == ABSENT for row in ran for word in measures),
        has_ranks=not all(run.is_plain for run in trace.runs.values()),
        software=software(trace.circumstances),
        rows=ran,
        nature=nature,
        has_kinds=len(ran) < LEAST or len({(row.strategy, row.nature) for row in ran}) > 1,
        skipped=[row for row in rows if row.ended == "skipped"],
    )


def _numbers_apart(name: str) -> list[str | int]:
    """A key that sorts names as people do, so that `step_9` precedes `step_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _evidence(experiment: str, measured: MachineFolder, folio: Folio) -> Evidence:
    """What expressions read where a machine's own runs of an experiment stand."""
    trace = TraceOnPage(measured.traces[experiment], measured.machine)
    return Evidence(replace(folio.book, traces={experiment: trace}))


def _row(path: str, run: Run, end: str, evidence: Evidence, folio: Folio) -> View:
    """A run, with what it measured by its name in words."""
    name = path.partition(".")[2]
    # What the numbers of a row share stands once.
    nature = CROWDED if is_crowded(run) else "" if run.nature == "real" else run.nature
    cores = evidence.book.traces[path.partition(".")[0]].machine.num_cores
    if not nature and run.status != "skipped" and run.device == "cpu" and num_ranks(run) > cores:
        nature = CROWDED  # ranks that a launcher started, which the run did not count
    page = folio.without_mark(nature)

    def read(*keys: Key) -> Value | None:
        """None where the run did not measure it, or was skipped."""
        return None if run.status == "skipped" else evidence.reading(path, *keys)

    peaks = [read("ranks", place, "memory", "peak_bytes") for place in range(len(run.ranks))]
    wall = read("timing", "wall_seconds")
    measured = {
        "Peak": max(filter(None, peaks), key=numeric, default=None),
        "Payload per step": _payload(run, read),
        "Step": read("timing", "step"),
        # with no digit below the millisecond that its clock tells
        "Whole run": wall and wall.formatted(digits=min(3, len(str(round(numeric(wall) * 1000))))),
    }
    if run.is_plain:  # its own measures, instead of those of ranks
        own = {name: read("measures", name) for name in run.ranks[0].measures}
        own |= {name: read("timing", "measures", name) for name in run.timing.measures}
        measured = {
            name.removeprefix("num_").replace("_", " ").capitalize(): value
            for name, value in own.items()
        }
    num = ("world_size",) if num_ranks(run) == run.world_size else ("settings", "num_ranks")
    message = run.error.message if run.error else ""
    return View(
        name=name,
        id=f"{name}{end}",
        strategy=folio.strategy(run),
        nature=nature,
        ranks=page.printed(read(*num)),
        num_ranks=num_ranks(run),
        failure=DISAGREED if message.startswith("MeterDisagreesError") else "",
        expected=run.expected_status.replace("_", " "),
        ended=run.status.replace("_", " "),
        reason=HEAVIER.format(measure_command(path.partition(".")[0], full=True))
        if run.is_left_out
        else run.reason or "",
        is_surprise=run.is_surprise,
        measured={word: page.printed(value) for word, value in measured.items()},
    )


def _payload(run: Run, read: Callable[..., Value | None]) -> Value | None:
    """What the rank with the largest payload sends in a step; what it receives, others sent."""
    most: list[Value] = []
    for place, rank in enumerate(run.ranks):
        sent = [at for at, call in enumerate(rank.collectives) if call.operation != "recv"]
        values = [read("ranks", place, "collectives", at, "bytes") for at in sent]
        most = max(most, [payload for payload in values if payload], key=_total)
    formula = " + ".join(payload.formula for payload in most)
    return computed(_total(most), units.BYTES, formula, tuple(most)) if most else None


def _total(values: list[Value]) -> float:
    return sum(map(numeric, values))

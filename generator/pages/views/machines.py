"""A machine's own page: what it is, and what it measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from generator.content.shelf import Measured
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.units import Unit
from generator.evidence.value import Origin, Value
from generator.pages.shown import Shown
from runners.traces.machine_records import Machine
from runners.traces.quiet_record import Quietness, quietness

PER_SECOND, BYTES_PER_SECOND = Unit(0, -1), Unit(1, -1)
PRIMITIVES: tuple[tuple[str, Unit | None, str], ...] = (
    (r"matrix_flops_per_second", PER_SECOND, "matrix"),
    (r"memory_bytes_per_second", BYTES_PER_SECOND, "memory"),
    (r"all_reduce_(?P<n>\d+)_alpha_seconds", units.SECONDS, "start"),
    (r"all_reduce_(?P<n>\d+)_beta_seconds_per_byte", None, "rate"),
)


def experiments(measured: Measured) -> list[Shown]:
    """What a machine has measured, by experiment, whose page says why runs were skipped."""
    rows = []
    for name, trace in measured.traces.items():
        num_skipped = sum(run.status == "skipped" for run in trace.runs.values())
        rows.append(
            Shown(
                name=name,
                recorded_at=trace.recorded_at,
                num_runs=len(trace.runs) - num_skipped,
                surprises=[one for one, run in trace.runs.items() if run.is_surprise],
                num_skipped=num_skipped,
                is_stale=name in measured.stale,
            )
        )
    return rows


def quiet(measured: Measured) -> Quietness:
    """Which experiments this machine measured while nothing else disturbed them."""
    return quietness({name: trace.quiet for name, trace in measured.traces.items()})


def facts(measured: Measured, folio: Folio) -> list[tuple[str, Markup]]:
    """What a machine is: the words of `machine.json`, each with its provenance."""
    words, machine = folio.ui["machines"], measured.machine
    found: list[tuple[str, int | str | None, Unit, str]] = [
        (words["cpu"], machine.cpu, units.TEXT, "cpu"),
        (words["cores"], machine.num_cores, units.COUNT, "num_cores"),
        (words["installed_cores"], _more_cores(machine), units.COUNT, "num_installed_cores"),
        (words["memory"], machine.memory_bytes, units.BYTES, "memory_bytes"),
        (words["system"], machine.system, units.TEXT, "system"),
        (words["python"], machine.python, units.TEXT, "python"),
        (words["torch"], machine.torch, units.TEXT, "torch"),
    ]
    for place, one in enumerate(machine.accelerators):
        field = f"accelerators[{place}]"
        found.append((words["accelerator"], one.name, units.TEXT, f"{field}.name"))
        found.append((words["its_memory"], one.memory_bytes, units.BYTES, f"{field}.memory_bytes"))
    found += [*_topology(measured, words)]
    found += [_library(name, version, words) for name, version in machine.libraries.items()]
    return [
        (name, folio.show(Value(thing, unit, "measured", f"machine.{field}",
                                origin=Origin(machine.name, field=f"machine.{field}"))))
        for name, thing, unit, field in found
        if thing is not None
    ]  # fmt: skip


def _library(name: str, version: str, words: dict[str, Any]) -> tuple[str, str, Unit, str]:
    """A library with its version, or with that of the library which brings it along."""
    called, bringing = words["libraries"].get(name, name), version.removeprefix("of ")
    if bringing != version:
        called = words["bundled"].format(name=called)
    return called, bringing, units.TEXT, f"libraries.{name}"


def _more_cores(machine: Machine) -> int | None:
    """Installed cores, where ranks may not use all of them."""
    return machine.num_installed_cores if machine.num_installed_cores != machine.num_cores else None


def _topology(
    measured: Measured, words: dict[str, Any]
) -> Iterator[tuple[str, int | str | None, Unit, str]]:
    topology = measured.machine.topology
    if topology is None:
        return
    for name in ("num_sockets", "num_physical_cores", "threads_per_core"):
        yield words[name], getattr(topology, name), units.COUNT, f"topology.{name}"
    for place, cache in enumerate(topology.caches):
        name = words["cache"].format(level=cache.level, kind=cache.kind)
        yield name, cache.bytes, units.BYTES, f"topology.caches[{place}].bytes"
    if len(topology.numa_nodes) > 1:
        num = len(topology.numa_nodes)
        yield words["numa_nodes"], num, units.COUNT, "topology.numa_nodes"
    for place, link in enumerate(topology.links):
        name = words["link"].format(first=link.first, second=link.second)
        yield name, link.kind, units.TEXT, f"topology.links[{place}].kind"


def primitives(measured: Measured, folio: Folio) -> list[tuple[str, Markup]]:
    """The primitives of a machine, as far as people read their units."""
    words = folio.ui["machines"]["primitives"]
    found = measured.primitives.primitives if measured.primitives else {}
    shown = []
    for name, number in found.items():
        if isinstance(number, float) and number > 0:
            origin = Origin(measured.machine.name, field=f"primitives[{name!r}]")
            for pattern, unit, word in PRIMITIVES:
                told = re.fullmatch(pattern, name)
                if told:
                    value = _primitive(number, unit, origin)
                    shown.append((words[word].format(**told.groupdict()), folio.show(value)))
    return shown


def _primitive(number: float, unit: Unit | None, origin: Origin) -> Value:
    """A rate; one told in seconds a byte reads better as bytes a second."""
    if unit is not None:
        return Value(number, unit, "measured", origin.field, origin=origin)
    formula = f"1 / {origin.field}"
    turned = origin._replace(field=formula)
    return Value(1 / number, BYTES_PER_SECOND, "computed", formula, origin=turned)

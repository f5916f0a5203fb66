"""A machine's own page: what it is, and what it measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from generator.content.shelf import Measured
from generator.evidence import units
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import Folio
from generator.evidence.units import Unit
from generator.evidence.value import Origin, Value
from runners.traces.machine_records import Machine

PER_SECOND, BYTES_PER_SECOND = Unit(0, -1), Unit(1, -1)
PRIMITIVES: tuple[tuple[str, Unit | None, str], ...] = (
    (r"matrix_flops_per_second", PER_SECOND, "matrix"),
    (r"memory_bytes_per_second", BYTES_PER_SECOND, "memory"),
    (r"all_reduce_(?P<n>\d+)_alpha_seconds", units.SECONDS, "start"),
    (r"all_reduce_(?P<n>\d+)_beta_seconds_per_byte", None, "rate"),
)


def quiet(measured: Measured) -> dict[str, list[str]]:
    """Experiments by whether something else disturbed this machine, as their traces record it."""
    found: dict[str, list[str]] = {"quiet": [], "disturbed": [], "unknown": []}
    for name, trace in measured.traces.items():
        around = trace.quiet
        state = "unknown" if around is None else "disturbed" if around.disturbances else "quiet"
        found[state].append(name)
    return found


def facts(measured: Measured, folio: Folio) -> list[tuple[str, Markup]]:
    """What a machine is: the words of `machine.json`, each with its provenance."""
    evidence = Evidence(replace(folio.book, machine=measured.machine))
    return [
        (name, folio.show(value))
        for name, field in _facts(measured.machine, folio.ui["machines"])
        if isinstance(value := evidence.evaluate(f"machine.{field}").result, Value)
    ]


def _facts(machine: Machine, words: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of `machine.json` that people read, each with its name; some may be empty."""
    yield words["cpu"], "cpu"
    yield words["cores"], "num_cores"
    yield words["memory"], "memory_bytes"
    if machine.caches:
        yield words["caches"], "caches"
    yield from ((words[name], name) for name in ("system", "python", "torch"))
    for place in range(len(machine.accelerators)):
        yield words["accelerator"], f"accelerators[{place}].name"
        yield words["its_memory"], f"accelerators[{place}].memory_bytes"


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
                    value, num = _primitive(number, unit, origin), told.groupdict().get("n", "1")
                    crowd = words["crowd"] if int(num) > measured.machine.num_cores else ""
                    shown.append((words[word].format(n=num) + crowd, folio.show(value)))
    return shown


def _primitive(number: float, unit: Unit | None, origin: Origin) -> Value:
    """A rate; one told in seconds a byte reads better as bytes a second."""
    if unit is not None:
        return Value(number, unit, "measured", origin.field, origin=origin)
    formula = f"1 / {origin.field}"
    turned = origin._replace(field=formula)
    return Value(1 / number, BYTES_PER_SECOND, "computed", formula, origin=turned)

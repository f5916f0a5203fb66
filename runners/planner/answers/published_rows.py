"""Published rows: trainings that others ran, with the memory or the time that they measured. No torch.

In: `planner/published_measurements.yml` and `published_rates.yml`, whose heads say which rows qualify
and how a file is read, and the tables in CSV that they name. Out: a `Row` each, in the fields by
which a plan asks for a training, and in one unit: bytes, and seconds of a step.
"""

import csv
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from runners.declared.settings import Count
from runners.planner.answers.answer import GIB
from runners.planner.answers.architecture import Architecture, Id
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.published import KINDS, PLANNER
from runners.planner.answers.question import (
    Implementation,
    Model,
    PlanError,
    Question,
    Strategy,
    Training,
)
from runners.traces.schema import Record

MEASUREMENTS, RATES = "published_measurements.yml", "published_rates.yml"
_FORMS = {"table", "csv", "columns", "only", "values"}  # of an entry that holds several rows
Positive = Annotated[float, Field(gt=0)]


class Place(Record):
    """Where a row was published.

    Attributes:
        field: the table or key that states the value.
    """

    title: str
    where: str
    url: str
    field: str = ""


class Device(Record):
    """What it ran on; rates are those of `law_of_time.Cluster`, and 0 where nothing needs them."""

    name: str
    memory_gib: Positive | None = Field(None, description="where the source states it")
    per_node: Count = 8
    flops: float = 0.0
    within: float = 0.0
    between: float = 0.0


class Measurement(Record):
    """One published number.

    Attributes:
        kind: `allocated` are blocks given out, `active` those and freed ones that a stream still
            uses, `reserved` all segments.
        moment: `peak` since the start, or `between_steps`.
        rank: which rank's; `largest` over all.
        value: as published, in `unit`; `percent` is of the device's memory.
        step: after which update it was read, where the source says so.
    """

    kind: Literal["allocated", "active", "reserved"]
    moment: Literal["peak", "between_steps"] = "peak"
    rank: Literal["last", "largest", "unstated"] = "largest"
    value: Positive
    unit: Literal["bytes", "GiB", "percent"] = "GiB"
    step: Count | None = None
    field: str


class Row(Training, Implementation):
    """One training that was measured.

    Attributes:
        id: names the row, and its strategy; `case` is its name at the source.
        source: where it stands, and in which `part` of it.
        framework: whose layers; they decide which activations are kept.
        group: the cluster or the search that it belongs to.
        software: the release or the variant of the program; rows of one are compared.
        measured: peaks of memory.
        seconds: of a step; None where it failed, or was not published.
        mfu: share of the highest rate, where the source of a search states it.
        num_out_of_memory: other layouts of a search that were tried and failed.
        details: other settings that change what is allocated, by the names of notes.
        derived: what the source does not state and how it follows, by the names of notes.
    """

    id: Id
    case: str = ""
    source: Place
    part: str = ""
    framework: Literal["transformer_engine", "megatron_local", "torchtitan"] | None = None
    group: str = ""
    software: str = ""
    model: str
    architecture: Architecture
    strategy: Strategy
    device: Device
    devices: Count
    measured: list[Measurement] = []
    seconds: Positive | None = None
    mfu: float = 0.0
    num_out_of_memory: int = 0
    details: list[str] = []
    derived: list[str] = []

    @property
    def question(self) -> Question:
        """The row as a plan asks it."""
        training, own = ({*one.model_fields} for one in (Training, Implementation))
        return Question(
            model=Model(name=self.model, architecture=self.architecture),
            training=Training(**self.model_dump(include=training)),
            implementation=Implementation(**self.model_dump(include=own)),
            strategy=self.strategy,
        )

    @property
    def cluster(self) -> Cluster:
        """The devices that it ran on."""
        device = self.device
        rates = device.flops, device.within, device.between
        return Cluster(1, device.per_node, *rates).of(self.devices)

    @property
    def search(self) -> tuple[str, int, int, str]:
        """What rows have in common that are layouts of one training on one cluster."""
        return self.group, self.sequence, self.global_batch, self.software

    def bytes_of(self, kind: str, moment: str = "peak") -> float | None:
        """A measurement in bytes; None where this kind was not published."""
        percent = (self.device.memory_gib or 0) * GIB / 100
        units = {"bytes": 1, "GiB": GIB, "percent": percent}
        found = (one for one in self.measured if (one.kind, one.moment) == (kind, moment))
        return next((one.value * units[one.unit] for one in found), None)


@cache
def read(name: str) -> dict[str, Any]:
    """A file of the planner with published rows, and what else it states."""
    found: dict[str, Any] = yaml.safe_load((PLANNER / name).read_text(encoding="utf-8"))
    return found


@cache
def rows(name: str) -> list[Row]:
    """The rows of a file of the planner, in their order.

    Raises:
        PlanError: a row is not what it should be.
    """
    found, file = list[Row](), read(name)
    for entry in file["rows"]:
        for place, values in _values(entry):
            try:
                found.append(_row(values, file))
            except (LookupError, TypeError, ValueError) as error:
                said = error.errors()[0] if isinstance(error, ValidationError) else {}
                why = f"{said['loc'][0]}: {said['msg']}" if said else str(error)
                raise PlanError(f"{place or values.get('id', name)}: {why}") from error
    return found


def _values(entry: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of an entry, with the place of those that a table in CSV has."""
    shared = {name: value for name, value in entry.items() if name not in _FORMS}
    if "csv" not in entry:
        for one in entry.get("table", [[]]):
            yield "", shared | dict(zip(entry.get("columns", ()), one, strict=True))
        return
    columns, words, path = entry["columns"], entry.get("values", {}), PLANNER / entry["csv"]
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, restval="")
        for line in reader:
            if any(line[column] not in some for column, some in entry["only"].items()):
                continue
            named = {own: line[column] for own, column in columns.items()}
            named = {own: words.get(own, {}).get(text, text) for own, text in named.items()}
            yield f"{path.name}:{reader.line_num}", shared | {k: v for k, v in named.items() if v}


def _row(values: dict[str, Any], file: dict[str, Any]) -> Row:
    """A row of the words and numbers that state it."""
    for name, value in values.items():
        if isinstance(value, str) and value.isdecimal():
            values[name] = int(value)
    for name, usual in {"group": "{model} on {devices}", "id": "{group}"}.items():
        values[name] = values.get(name, usual).format_map(values)
    values["source"] = {k: text.format_map(values) for k, text in values["source"].items()}
    shape = values.get("architecture") or file["models"][values["model"]]
    layers = values.pop("layers", shape["num_layers"])  # a model may be cut to the first of them
    strategy = {one: values.pop(one) for one in Strategy.model_fields if one in values}
    device = values["device"]
    values |= {
        "id": values["id"].lower().replace("_", "-").replace(" ", "-"),
        "architecture": {**shape, "num_layers": layers},
        "device": file["devices"][device] if isinstance(device, str) else device,
        "strategy": _strategy({**strategy, **values.pop("strategy", {})}, values),
        "seconds": _seconds(values, shape),
        "measured": [*_measured(values)],
    }
    return Row.model_validate(values, strict=False)


def _strategy(stated: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The axes, of which the data axis takes what the others leave."""
    tensor, stages, context = (stated.get(one, 1) for one in ("tensor", "pipeline", "context"))
    kind = "interleaved" if stated.get("chunks", 1) > 1 else "1f1b"
    usual = {
        "name": values["id"],
        "data": values["devices"] // (tensor * stages * context),
        "schedule": kind if stages > 1 else "none",
    }
    divides = tensor > 1 and stated.get("has_sequence_parallel", False)
    return {**usual, **stated, "has_sequence_parallel": divides}


def _seconds(values: dict[str, Any], shape: dict[str, Any]) -> float | None:
    """Of a step, from whichever rate of a device was published.

    Formula: where TFLOP/s count recomputed operations and the whole square of the scores, a step
    has 96 × batch × sequence × layers × hidden² × (1 + sequence / 6 hidden + vocabulary / 16 layers
    hidden) operations.
    Source: Narayanan et al., “Efficient Large-Scale Language Model Training on GPU Clusters”, 3.
    """
    tokens = values["global_batch"] * values["sequence"] / values["devices"]
    if speed := values.pop("tokens_per_second", None):
        return tokens / float(speed)
    if rate := values.pop("narayanan_tflops", None):
        layers, hidden = shape["num_layers"], shape["hidden_size"]
        more = values["sequence"] / (6 * hidden) + shape["vocabulary"] / (16 * layers * hidden)
        each: float = 96 * layers * hidden**2 * (1 + more)
        return tokens * each / (rate * 1e12)
    found: float | None = values.get("seconds")
    return found


def _measured(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Peaks as they stand, or of the columns that a table has for them."""
    yield from values.pop("measured", [])
    for kind in KINDS:
        if value := values.pop(f"{kind}_gib", None):
            yield {"kind": kind, "value": float(value), "field": f"measured_peak_{kind}_gib"}

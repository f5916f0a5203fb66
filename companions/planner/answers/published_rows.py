"""Published rows: trainings that others ran, with the memory or the time that was measured.

In: `published_measurements.yml` and `published_rates.yml`, whose heads say which rows qualify and
how they are read, and the tables in CSV that they name. Out: a `PublishedRow` each, in the fields
by which a plan asks for a training, in bytes and in seconds of a step. No torch.
"""

import csv
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from proofbook.companions.planner.answers.answer import GIB
from proofbook.companions.planner.answers.architecture import Architecture, Id
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.published import KINDS, PLANNER
from proofbook.companions.planner.answers.question import (
    Implementation,
    PlanError,
    PlannedModel,
    Question,
    Strategy,
    TrainingSettings,
)
from proofbook.runners.core.declared.settings import Count
from proofbook.runners.core.trace.schema import Record

MEASUREMENTS, RATES = "published_measurements.yml", "published_rates.yml"
_FORMS = {"table", "csv", "columns", "only", "values"}  # of an entry that holds several rows
Positive = Annotated[float, Field(gt=0)]


class Citation(Record):
    """Where a row was published, and the table or key there that states the value."""

    title: str
    where: str
    url: str
    field: str = ""


class PublishedDevice(Record):
    """The device of a row; rates are those of `law_of_time.Cluster`, or 0 where none is needed."""

    name: str
    memory_gib: Positive | None = Field(None, description="where the source states it")
    per_node: Count = 8
    flops: float = 0.0
    within: float = 0.0
    between: float = 0.0


class Measurement(Record):
    """Published memory of a rank."""

    # `allocated` are blocks given out, `active` those and freed ones that a stream still uses,
    # `reserved` all segments
    kind: Literal["allocated", "active", "reserved"]
    moment: Literal["peak", "between_steps"] = "peak"  # `peak`: since the start
    rank: Literal["last", "largest", "unstated"] = "largest"  # which rank's; `largest` over all
    bytes: Positive
    step: Count | None = None  # after which update it was read, where the source says so
    field: str


class PublishedRow(TrainingSettings, Implementation):
    """One training that was measured."""

    id: Id  # names the row, and its strategy; `case` is its name at the source
    case: str = ""
    source: Citation  # where it stands, and in which `part` of it
    part: str = ""
    # whose layers; they decide which activations are kept
    framework: Literal["transformer_engine", "megatron_local", "torchtitan"] | None = None
    group: str  # the cluster or the search that it belongs to
    software: str = ""  # the release or the variant of the program
    model: str
    architecture: Architecture
    strategy: Strategy
    device: PublishedDevice
    devices: Count
    measured: list[Measurement]
    seconds: Positive | None  # of a step; None where it failed, or was not published
    mfu: float = 0.0  # share of the highest rate, where the source of a search states it
    num_out_of_memory: int = 0  # other layouts of a search that were tried and failed
    details: list[str] = []  # other settings that change what is allocated, by the names of notes
    derived: list[str] = []  # what the source does not state and how it follows, by such names

    @property
    def question(self) -> Question:
        """The question of a plan that simulates the row."""
        training, own = ({*record.model_fields} for record in (TrainingSettings, Implementation))
        return Question(
            model=PlannedModel(name=self.model, architecture=self.architecture),
            training=TrainingSettings(**self.model_dump(include=training)),
            implementation=Implementation(**self.model_dump(include=own)),
            strategy=self.strategy,
        )

    @property
    def cluster(self) -> Cluster:
        """The devices of the row, with their rates."""
        device = self.device
        node = Cluster(1, device.per_node, device.flops, device.within, device.between)
        return node.with_devices(self.devices)


@cache
def read(name: str) -> dict[str, Any]:
    """The document of a file of the planner that states published rows."""
    return dict(yaml.safe_load((PLANNER / name).read_text(encoding="utf-8")))


@cache
def rows(name: str) -> list[PublishedRow]:
    """`PublishedRow`s of a YAML file and its CSV tables; a PlanError says where one is wrong."""
    published, file = list[PublishedRow](), read(name)
    for place, values in (pair for listing in file["rows"] for pair in _values(listing)):
        try:
            published.append(_row(values, file))
        except (LookupError, TypeError, ValueError) as error:
            message = (
                f"{error} is not stated in {name}" if isinstance(error, KeyError) else str(error)
            )
            if isinstance(error, ValidationError):
                message = "; ".join(f"{e['loc'][0]}: {e['msg']}" for e in error.errors())
            raise PlanError(f"{place or values.get('id', name)}: {message}") from error
    return published


def _values(listing: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The stated values of each row of a listing, with its place in a CSV file, or ""."""
    shared = {name: value for name, value in listing.items() if name not in _FORMS}
    if "csv" not in listing:
        for cells in listing.get("table", [[]]):
            yield "", shared | dict(zip(listing.get("columns", ()), cells, strict=True))
        return
    columns, words, path = listing["columns"], listing["values"], PLANNER / listing["csv"]
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, restval="")
        for line in lines:
            if all(line[column] in some for column, some in listing["only"].items()):
                texts = {own: line[column] for own, column in columns.items()}
                named = {own: words.get(own, {}).get(text, text) for own, text in texts.items()}
                stated = {own: value for own, value in named.items() if value != ""}
                yield f"{path.name}:{lines.line_num}", shared | stated


def _row(values: dict[str, Any], file: dict[str, Any]) -> PublishedRow:
    """Make a row of its stated values; braces in texts stand for fields of the row."""
    numbers = {k: int(v) for k, v in values.items() if isinstance(v, str) and v.isdecimal()}
    values |= {"group": "{model} on {devices}", "id": "{group}"} | values | numbers
    for name in ("group", "id"):
        values[name] = values[name].format_map(values)
    values["id"] = values["id"].lower().replace("_", "-").replace(" ", "-")
    values["source"] = {k: text.format_map(values) for k, text in values["source"].items()}
    shape = values.get("architecture") or file["models"][values["model"]]
    layers = values.pop("layers", shape["num_layers"])  # a model may be cut to the first of them
    values["architecture"] = shape = {**shape, "num_layers": layers}
    if isinstance(device := values["device"], str):
        values["device"] = file["devices"][device]
    values["strategy"] = _strategy(values)
    values["measured"] = [*_measured(values)]
    values["seconds"] = _seconds(values, shape)
    return PublishedRow.model_validate(values, strict=False)


def _strategy(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of the strategy; the data axis takes the devices that other axes leave."""
    stated = {field: values.pop(field) for field in Strategy.model_fields if field in values}
    stated |= values.get("strategy", {})
    tensor, stages, context = (stated.get(axis, 1) for axis in ("tensor", "pipeline", "context"))
    kind = "interleaved" if stated.get("chunks", 1) > 1 else "1f1b"
    return {
        "name": values["id"],
        "data": values["devices"] // (tensor * stages * context),
        "schedule": kind if stages > 1 else "none",
        **stated,
        "has_sequence_parallel": tensor > 1 and stated.get("has_sequence_parallel", False),
    }


def _measured(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of each measurement, in bytes, of a list or of columns for peaks."""
    units = {"bytes": 1, "GiB": GIB, "percent": values["device"].get("memory_gib", 0) * GIB / 100}
    for measurement in values.pop("measured", []):
        stated = {k: v for k, v in measurement.items() if k not in ("value", "unit")}
        yield {**stated, "bytes": measurement["value"] * units[measurement["unit"]]}
    for kind in KINDS:
        if size := values.pop(f"{kind}_gib", None):
            yield {"kind": kind, "bytes": float(size) * GIB, "field": f"measured_peak_{kind}_gib"}


def _seconds(values: dict[str, Any], shape: dict[str, Any]) -> float | None:
    """Seconds of a step, from whichever rate of a device was published.

    Formula: for TFLOP/s that count recomputed operations and the whole square of the scores, 96 ×
    batch × sequence × layers × hidden² × (1 + sequence / 6 hidden + vocabulary / 16 layers hidden).
    Source: Narayanan et al., “Efficient Large-Scale Language Model Training on GPU Clusters”, 3.
    """
    tokens = float(values["global_batch"] * values["sequence"] / values["devices"])
    if speed := values.pop("tokens_per_second", None):
        return tokens / float(speed)
    if rate := values.pop("narayanan_tflops", None):
        layers, hidden, vocabulary = (shape[k] for k in ("num_layers", "hidden_size", "vocabulary"))
        more = values["sequence"] / (6 * hidden) + vocabulary / (16 * layers * hidden)
        return tokens * float(96 * layers * hidden**2 * (1 + more) / (rate * 1e12))
    return float(values["seconds"]) if "seconds" in values else None

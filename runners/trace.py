"""The trace: what one experiment measured on one machine, as a versioned JSON file.

Flow: `launch.py` gathers what the ranks recorded into a `Trace`; `write` puts it on disk whole;
`read` gives it back to the generator, refusing whatever it does not know. No torch here: pages are
built from committed traces on machines that never install it.

Everything a rerun must reproduce stands outside `timing`; every measured time stands inside it, so
two traces can be compared without comparing clocks. Units are in the names: `_bytes`, `_seconds`,
`_share` (0 to 1), `num_` for counts. A share or an accuracy is a fraction, never a percentage.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runners.digest import source_digest

__all__ = [
    "MAX_TRACE_BYTES",
    "SCHEMA_VERSION",
    "Machine",
    "Run",
    "Samples",
    "Trace",
    "TraceError",
    "finite_or_none",
    "is_stale",
    "json_schema",
    "read",
    "read_machine",
    "source_digest",
    "write",
    "write_json",
    "write_machine",
]

SCHEMA_VERSION = 1
MAX_TRACE_BYTES = 300_000

Status = Literal[
    "completed", "out_of_memory", "diverged", "deadlocked", "died", "failed", "skipped"
]
Activity = Literal["compute", "communication", "waiting"]
Shape = list[int]
Setting = int | float | str | bool | None | list[int] | list[float] | list[str]
Loss = float | None  # null where the loss was not finite; `non_finite` then says where and what


class TraceError(ValueError):
    """A trace that cannot be used; the message names the file and the field."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Code(_Record):
    """Which code measured: `digest` decides staleness, commit and dirty are for people."""

    digest: str
    commit: str | None
    dirty: bool


class Software(_Record):
    """Versions that a result can depend on."""

    python: str
    torch: str


class Failure(_Record):
    """Why a rank or a run ended otherwise than by completing."""

    kind: str = Field(description="out_of_memory, peer_lost, hang, signal, exception, diverged")
    message: str = Field(description="the first line of what was raised, as it was raised")
    asked_bytes: int | None = Field(description="bytes the refused allocation asked for")
    rank: int | None
    phase: str = Field(description="build, wrap, forward, backward, optimizer, …")
    step: int | None = Field(description="training step of the failure, from 0; null before it")


class Layer(_Record):
    """One layer of the model as this run placed it."""

    name: str
    kind: str
    weight_shape: Shape
    num_parameters: int
    bytes: int
    ranks: list[int] = Field(description="the ranks that hold it, whole or as shards")


class Model(_Record):
    """The whole model, before any split."""

    num_parameters: int
    bytes: int
    dtype: str
    layers: list[Layer]


class Stage(_Record):
    """One stage of the data's way: what went in, what was done, what came out.

    Shapes, dtype, bytes and values are read off the tensors by the recorder. Its time is in
    `timing.stages` under the same name.
    """

    name: str
    rank: int | None = Field(description="null: the same on every rank")
    operation: str
    shape_in: Shape
    shape_out: Shape
    dtype: str
    bytes: int = Field(description="bytes of what came out")
    values: list[float] = Field(description="the first values of what came out")


class RankEpoch(_Record):
    """What one rank saw in an epoch; kept where ranks may differ."""

    rank: int
    loss: Loss
    parameter_digest: str


class Epoch(_Record):
    """Training and validation after one pass over the rows; epochs count from 1."""

    epoch: int
    loss: Loss = Field(description="mean over the epoch's samples, all ranks")
    accuracy: float | None
    validation_loss: Loss
    validation_accuracy: float | None
    ranks: list[RankEpoch]


class Validation(_Record):
    """The last look at rows never trained on."""

    rank: int
    num_rows: int
    loss: Loss
    accuracy: float | None


class PredictionStep(_Record):
    """One step of one real batch through the model; its time is in `timing.prediction`."""

    name: str
    rank: int | None
    operation: str
    shape_in: Shape
    shape_out: Shape
    values: list[float]
    facts: dict[str, Setting] = Field(
        description="what else the step shows: loss, digest, class …"
    )


class MemoryClasses(_Record):
    """Bytes by what they are for."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buckets_bytes: int = Field(description="what a wrapper (DDP, FSDP) keeps to communicate")
    buffers_bytes: int = Field(description="module buffers and input rows")


class Memory(_Record):
    """What one rank needed, above what it held before the model was built.

    `peak_bytes`, `at_peak`, `largest` and `phases` come from the dispatch-mode meter of a metered
    pass; `kernel_peak_bytes` is the kernel's own high-water mark over the same stretch, and the
    only one a budgeted pass has.
    """

    peak_bytes: int | None
    peak_phase: str | None
    at_peak: MemoryClasses | None
    largest: MemoryClasses | None = Field(description="the most each class ever held")
    phases: dict[str, int] = Field(description="peak bytes by phase")
    kernel_peak_bytes: int | None


class Collective(_Record):
    """All calls of one operation on one rank during one metered step."""

    operation: str
    count: int
    bytes: int = Field(description="payload handed to the operation, summed over the calls")


class RankRecord(_Record):
    """What one rank did."""

    rank: int
    status: Status
    failure: Failure | None
    num_parameters: int | None = Field(description="parameters this rank holds")
    num_samples: int | None = Field(description="training samples this rank saw")
    first_parameter_digest: str | None = Field(description="before any wrapper touched them")
    start_parameter_digest: str | None = Field(description="when training started")
    parameter_digest: str | None = Field(description="when training ended")
    memory: Memory | None
    collectives: list[Collective] = Field(description="of one metered step")


class Samples(_Record):
    """Repeated measurements of one time, raw, with what is reported of them."""

    unit: Literal["seconds"]
    samples: list[float]
    num_samples: int
    first_quartile_seconds: float
    median_seconds: float
    third_quartile_seconds: float

    @classmethod
    def of(cls, seconds: list[float]) -> Samples:
        """Summarise raw samples, in seconds.

        Raises:
            ValueError: without a sample.
        """
        if not seconds:
            raise ValueError("no sample to summarise")
        kept = [round(s, 7) for s in seconds]
        first, middle, third = (
            statistics.quantiles(kept, n=4, method="inclusive")
            if len(kept) > 1
            else (kept[0], kept[0], kept[0])
        )
        return cls(
            unit="seconds",
            samples=kept,
            num_samples=len(kept),
            first_quartile_seconds=round(first, 7),
            median_seconds=round(middle, 7),
            third_quartile_seconds=round(third, 7),
        )


class Span(_Record):
    """What a rank was doing between two moments of the one step a timeline shows."""

    rank: int
    activity: Activity
    name: str
    start_seconds: float
    end_seconds: float


class RankTime(_Record):
    """How one rank spent the step of the timeline."""

    rank: int
    compute_seconds: float
    communication_seconds: float
    waiting_seconds: float
    waiting_share: float = Field(description="of the whole step, 0 to 1")


class Timing(_Record):
    """Every measured time of a run."""

    wall_seconds: float = Field(description="the run with all its passes")
    oversubscribed: bool = Field(description="more ranks than cores: not for fits of speed")
    step: Samples | None
    stages: dict[str, float] = Field(description="seconds by stage")
    prediction: dict[str, float] = Field(description="seconds by prediction step")
    timeline: list[Span]
    ranks: list[RankTime]


class NonFinite(_Record):
    """A value that JSON cannot carry; the field itself holds null."""

    field: str
    step: int | None
    kind: Literal["nan", "inf", "-inf"]


class Run(_Record):
    """One run of an experiment: what was set, what was expected, what happened."""

    strategy: str
    world_size: int
    backend: Literal["gloo", "nccl"]
    device: Literal["cpu", "cuda"]
    seed: int
    settings: dict[str, Setting]
    budget_bytes: int | None = Field(description="what each rank was allowed; null: no limit")
    expected_status: Status
    status: Status
    reason: str | None = Field(description="why it was skipped")
    error: Failure | None = Field(description="the root cause among the ranks' failures")
    passes: list[str] = Field(description="metered, timed, budgeted: the passes that ran")
    allocator: dict[str, str] = Field(description="environment of the ranks, by pass")
    model: Model | None
    stages: list[Stage]
    epochs: list[Epoch]
    step_losses: list[Loss] = Field(description="the loss of each step, for the runs that keep it")
    validation: Validation | None
    prediction: list[PredictionStep]
    ranks: list[RankRecord]
    printed: list[str] = Field(description="what rank 0 printed")
    non_finite: list[NonFinite]
    timing: Timing

    @property
    def is_surprise(self) -> bool:
        """Whether the run ended otherwise than declared; a skipped run never surprises."""
        return self.status not in (self.expected_status, "skipped")


class Trace(_Record):
    """All runs of one experiment on one machine."""

    schema_version: Literal[1]
    experiment: str
    question: str = Field(description="what the experiment asks, in one sentence")
    recorded_at: str = Field(description="UTC, ISO 8601, seconds")
    machine: str
    code: Code
    software: Software
    runs: Annotated[dict[str, Run], Field(min_length=1)]


class Accelerator(_Record):
    """One accelerator of a machine."""

    name: str
    memory_bytes: int


class Machine(_Record):
    """What a machine is; its folder's name is `name`."""

    schema_version: Literal[1]
    name: str
    fingerprint: str
    is_reference: bool
    cpu: str
    num_cores: int
    memory_bytes: int
    system: str
    python: str
    torch: str
    accelerators: list[Accelerator]


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"bare {text} is not JSON")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such trace; measure it with `python -m runners run`") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path}: not a whole JSON file ({error}); delete it and run again"
        ) from None


RecordT = TypeVar("RecordT", bound=_Record)


def _parse(path: Path, model: type[RecordT]) -> RecordT:
    document = _load(path)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise TraceError(
            f"{path}: schema_version {version} is newer than this Proofbook reads "
            f"({SCHEMA_VERSION}); update the project"
        )
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "(whole file)"
        others = error.error_count() - 1
        more = f" (and {others} more)" if others else ""
        raise TraceError(f"{path}: {field}: {first['msg'].lower()}{more}") from None


def read(path: Path) -> Trace:
    """Read one trace.

    Raises:
        TraceError: the file is missing, torn, of a future schema, or a field is malformed,
            unknown or not finite; the message names file and field.
    """
    trace = _parse(path, Trace)
    if trace.experiment != path.stem:
        raise TraceError(f"{path}: experiment: is {trace.experiment!r}, the file says {path.stem!r}")
    return trace


def read_machine(folder: Path) -> Machine:
    """Read `machine.json` of a machine's folder.

    Raises:
        TraceError: as `read`.
    """
    return _parse(folder / "machine.json", Machine)


def is_stale(trace: Trace) -> bool:
    """Whether the experiment's code has changed since the trace was made."""
    return trace.code.digest != source_digest(trace.experiment)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write JSON sorted, indented and whole: a reader sees the old file or the new one.

    Raises:
        ValueError: a number is not finite.
        OSError: the disk refused; nothing is left behind.
    """
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(path: Path, trace: Trace) -> None:
    """Write one trace.

    Raises:
        ValueError: it holds a number that is not finite, or outgrows `MAX_TRACE_BYTES`.
        OSError: the disk refused; nothing is left behind.
    """
    document = trace.model_dump(mode="json")
    num_bytes = len(json.dumps(document, indent=1, sort_keys=True))
    if num_bytes > MAX_TRACE_BYTES:
        raise ValueError(f"{path.name} would hold {num_bytes} bytes, more than {MAX_TRACE_BYTES}")
    write_json(path, document)


def write_machine(folder: Path, machine: Machine) -> None:
    """Write `machine.json` into a machine's folder."""
    write_json(folder / "machine.json", machine.model_dump(mode="json"))


def finite_or_none(value: float) -> float | None:
    """The value, or None where JSON could not carry it."""
    return value if math.isfinite(value) else None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a trace, made from the models."""
    return Trace.model_json_schema()

"""What a trace holds: the models of its records, from which its JSON Schema is made.

Everything a rerun must reproduce stands outside `timing`; every measured time stands inside it, so
two traces can be compared without comparing clocks. Units are in the names: `_bytes`, `_seconds`,
`_share` (0 to 1), `num_` for counts. A share or an accuracy is a fraction, never a percentage.
"""

from __future__ import annotations

import signal as signals
import statistics
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from runners.traces.quiet_record import Quiet

Status = Literal[
    "completed", "out_of_memory", "diverged", "deadlocked", "died", "failed", "skipped"
]
Nature = Literal["real", "paced", "simulated"]
Activity = Literal["compute", "communication", "waiting"]
Shape = list[int]
Setting = int | float | str | bool | None | list[int] | list[float] | list[str]
Loss = float | None  # null where the loss was not finite; `non_finite` then says where and what


class Record(BaseModel):
    """Any part of a trace: unknown fields, and values of another type, are refused."""

    # JSON has no inf, but Python reads 1e999 as one.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Code(Record):
    """Which code measured: digests decide staleness, commit and dirty are for people.

    Attributes:
        digest: of the experiment, without the programs that it finds by a pattern.
        programs: the digest of each of these, by its path; a run names its own in its settings.
        commit: checked out then; None outside a repository.
        dirty: whether files differed from that commit.
    """

    digest: str
    programs: dict[str, str] = {}
    commit: str | None
    dirty: bool

    @model_serializer(mode="wrap")
    def _without_no_programs(self, written: SerializerFunctionWrapHandler) -> dict[str, object]:
        found: dict[str, object] = written(self)
        return found if self.programs else {k: v for k, v in found.items() if k != "programs"}


class Software(Record):
    """Versions that a result can depend on."""

    python: str
    torch: str


class Circumstances(Record):
    """What a result can depend on besides the machine itself; it may change with each command."""

    python: str
    torch: str
    affinity: str | None = Field(
        description="cores that ranks might use, as the kernel lists them: 0-3,8; null: not known"
    )
    visible_devices: str | None = Field(description="CUDA_VISIBLE_DEVICES; null: not set")
    huge_pages: str | None = Field(
        description="transparent huge pages: always, madvise or never; null: not known"
    )


class Failure(Record):
    """Why a rank or a run ended otherwise than by completing."""

    kind: str = Field(
        description=(
            "out_of_memory, peer_lost, hang, stopped, timed_out, signal, exception, diverged"
        )
    )
    message: str = Field(description="the first line of what was raised, as it was raised")
    asked_bytes: int | None = Field(description="bytes the refused allocation asked for")
    rank: int | None = Field(description="null: ranks hang, and none is behind the others")
    phase: str = Field(description="build, wrap, forward, backward, optimizer, …")
    step: int | None = Field(description="training step of the failure, from 0; null before it")
    signal: str | None = Field(default=None, description="that ended the process, such as SIGABRT")
    exit_code: int | None = Field(
        default=None, description="of a process that left without a record"
    )

    @model_serializer(mode="wrap")
    def _without_empty(self, dumped: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Few failures are deaths."""
        whole: dict[str, object] = dumped(self)
        return {k: v for k, v in whole.items() if k not in ("signal", "exit_code") or v is not None}


class Death(Record):
    """How a process dies that is meant to: by which signal or exit code, which rank, and where."""

    rank: int
    phase: str
    signal: str | None = Field(default=None, description="such as SIGABRT; null: it exits")
    exit_code: int | None = Field(default=None, description="null: a signal ends it")

    @model_validator(mode="after")
    def _ends_one_way(self) -> Death:
        if (self.signal is None) == (self.exit_code is None):
            raise ValueError("a death has either a signal or an exit code")
        if self.signal is not None and self.signal not in signals.Signals.__members__:
            raise ValueError(f"no signal is called {self.signal!r}; write it as SIGKILL is written")
        return self

    def is_that_of(self, failure: Failure) -> bool:
        """Whether a failure is this death."""
        return (failure.rank, failure.phase, failure.signal, failure.exit_code) == (
            self.rank,
            self.phase,
            self.signal,
            self.exit_code,
        )


class Layer(Record):
    """One layer of the model as this run placed it."""

    name: str
    kind: str
    weight_shape: Shape
    num_parameters: int
    bytes: int
    ranks: list[int] = Field(description="the ranks that hold it, whole or as shards")
    is_sharded: bool = Field(description="each of these ranks holds a part of it, not the whole")


class Model(Record):
    """The whole model, before any split."""

    num_parameters: int
    bytes: int
    dtype: str
    layers: list[Layer]


_SELDOM = ("ranks", "moves")


def without(names: tuple[str, ...], dumped: dict[str, object]) -> dict[str, object]:
    """A dumped record without those of these fields that are empty or as always."""
    return {name: kept for name, kept in dumped.items() if name not in names or kept}


class Held(Record):
    """What went into a stage and came out of it on one rank."""

    rank: int
    shape_in: Shape
    shape_out: Shape
    bytes: int = Field(description="bytes of what came out")


class Move(Record):
    """One operation between ranks in a stage, as a metered pass saw it pass by."""

    operation: str
    source: int | None = Field(description="null: every rank gives")
    target: int | None = Field(description="null: every rank receives")
    bytes: int = Field(description="payload as the rank that hands over most sees it")


class Stage(Record):
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
    ranks: list[Held] = Field(default=[], description="where ranks differ, each that passed it")
    moves: list[Move] = Field(default=[], description="what travelled; of a run with a timeline")

    @model_serializer(mode="wrap")
    def _without_empty(self, dumped: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Most stages know of one rank and move nothing; a trace need not say so each time."""
        return without(_SELDOM, dumped(self))


class RankEpoch(Record):
    """What one rank saw in an epoch; kept where ranks may differ."""

    rank: int
    loss: Loss
    parameter_digest: str


class Epoch(Record):
    """Training and validation after one pass over the rows; epochs count from 1."""

    epoch: int
    loss: Loss = Field(description="mean over the epoch's samples, all ranks")
    accuracy: float | None
    validation_loss: Loss
    validation_accuracy: float | None
    ranks: list[RankEpoch]


class Validation(Record):
    """The last look at rows never trained on."""

    rank: int
    num_rows: int
    loss: Loss
    accuracy: float | None


class PredictionStep(Record):
    """One step of one real batch through the model; its time is in `timing.prediction`."""

    name: str
    rank: int | None
    operation: str
    shape_in: Shape
    shape_out: Shape
    values: list[float]
    facts: dict[str, Setting] = Field(description="what else the step shows: loss, digest, class …")


class MemoryClasses(Record):
    """Bytes by what they are for."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buckets_bytes: int = Field(description="what a wrapper (DDP, FSDP) keeps to communicate")
    buffers_bytes: int = Field(description="module buffers and input rows")


class AllocatorMemory(Record):
    """What the allocator of an accelerator counted on one rank, above its start."""

    peak_bytes: int = Field(description="given out at most, each block rounded up")
    workspace_bytes: int = Field(description="of cuBLAS, in no tensor")
    rounding_bytes: int = Field(description="that rounding may have added to the peak")
    host_peak_bytes: int | None = Field(
        default=None, description="of tensors in main memory, by the meter"
    )


class Memory(Record):
    """What one rank needed, above what it held before the model was built.

    `peak_bytes`, `at_peak`, `largest` and `phases` come from the dispatch-mode meter of a metered
    pass; `kernel_peak_bytes` is the kernel's own high-water mark over the same stretch, and the
    only one a budgeted pass has. On an accelerator they count what lies there, and `allocator` is
    what they are checked against.
    """

    peak_bytes: int | None
    peak_phase: str | None
    at_peak: MemoryClasses | None
    largest: MemoryClasses | None = Field(description="the most each class ever held")
    phases: dict[str, int] = Field(description="peak bytes by phase")
    kernel_peak_bytes: int | None
    allocator: AllocatorMemory | None = None

    @model_serializer(mode="wrap")
    def _without_empty(self, dumped: SerializerFunctionWrapHandler) -> dict[str, object]:
        """On CPU there is none."""
        whole: dict[str, object] = dumped(self)
        return {k: v for k, v in whole.items() if k != "allocator" or v is not None}


class Collective(Record):
    """All calls of one operation on one rank during one metered step."""

    operation: str
    count: int
    bytes: int = Field(description="payload handed to the operation, summed over the calls")


class RankRecord(Record):
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
    measures: dict[str, Setting] = Field(
        default={}, description="what the experiment itself counted or compared on this rank"
    )

    @model_serializer(mode="wrap")
    def _without_empty(self, dumped: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Few experiments measure anything that the meters do not."""
        return without(("measures",), dumped(self))


class Samples(Record):
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


class Span(Record):
    """What a rank was doing between two moments of the one step a timeline shows."""

    rank: int
    activity: Activity
    name: str
    start_seconds: float
    end_seconds: float


class RankTime(Record):
    """How one rank spent the step of the timeline."""

    rank: int
    compute_seconds: float
    communication_seconds: float
    waiting_seconds: float
    waiting_share: float = Field(description="of the whole step, 0 to 1")


class Timing(Record):
    """Every measured time of a run."""

    wall_seconds: float = Field(description="the run with all its passes")
    oversubscribed: bool = Field(
        description="more ranks than cores, or than accelerators: not for fits of speed"
    )
    step: Samples | None
    stages: dict[str, float] = Field(description="seconds by stage")
    prediction: dict[str, float] = Field(description="seconds by prediction step")
    timeline: list[Span]
    ranks: list[RankTime]
    measures: dict[str, Samples] = Field(
        default={}, description="times that the experiment itself took, beside those of steps"
    )

    @model_serializer(mode="wrap")
    def _without_empty(self, dumped: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Few experiments time anything but steps and stages."""
        return without(("measures",), dumped(self))


class NonFinite(Record):
    """A value that JSON cannot carry; the field itself holds null."""

    field: str
    step: int | None
    kind: Literal["nan", "inf", "-inf"]


class Run(Record):
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
    nature: Nature = Field(
        default="real",
        description="paced: stages last as long as they were told; simulated: fake tensors",
    )
    expected_death: Death | None = Field(
        default=None, description="of a run that is meant to die; null: none was declared"
    )
    circumstances: Circumstances | None = Field(
        default=None, description="where they are not those of the whole trace"
    )

    @model_serializer(mode="wrap")
    def _without_usual(self, dumped: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Nearly every run is real, is not meant to die, and was measured with the others."""
        usual = {"nature": "real", "expected_death": None, "circumstances": None}
        whole: dict[str, object] = dumped(self)
        return {k: v for k, v in whole.items() if k not in usual or v != usual[k]}

    @property
    def is_surprise(self) -> bool:
        """Whether the run ended otherwise than declared; a skipped run never surprises."""
        if self.status == self.expected_status == "died" and self.expected_death and self.error:
            return not self.expected_death.is_that_of(self.error)
        return self.status not in (self.expected_status, "skipped")


class Trace(Record):
    """All runs of one experiment on one machine."""

    schema_version: Literal[1]
    experiment: str
    question: str = Field(description="what the experiment asks, in one sentence")
    recorded_at: str = Field(description="when the first of its runs began: UTC, ISO 8601, seconds")
    machine: str
    code: Code
    software: Software
    circumstances: Circumstances | None = Field(
        default=None, description="under which its runs were measured; null: not recorded"
    )
    quiet: Quiet | None = Field(
        default=None, description="what else the machine did meanwhile; null: not recorded"
    )
    runs: Annotated[dict[str, Run], Field(min_length=1)]

    @model_serializer(mode="wrap")
    def _without_unknown(self, dumped: SerializerFunctionWrapHandler) -> dict[str, object]:
        """What was not recorded then is not written now."""
        return without(("circumstances", "quiet"), dumped(self))

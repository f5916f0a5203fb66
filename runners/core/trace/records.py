"""The records of traces and machines: the models from which JSON Schemas are made.

Everything a rerun must reproduce stands outside `timing`; every measured time stands inside it, so
two traces can be compared without comparing clocks. Units are in the names: `_bytes`, `_seconds`,
`_share` (0 to 1), `num_` for counts. A share or an accuracy is a fraction, never a percentage.
"""

from signal import Signals
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from proofbook.runners.core.trace.measured import Collective, Memory, Timing
from proofbook.runners.core.trace.schema import (
    Guarded,
    Loss,
    Moment,
    Nature,
    Quantity,
    Record,
    Setting,
    Shape,
    Status,
    Version,
    now,
)

MOST_LOAD_SHARE = 0.05  # of the cores that others may use around a quiet experiment
MOST_CANARY_SHARE = 0.05  # by which the times of a canary may differ there
PLAIN_PASS = "plain"  # the only pass of a run without ranks (`runners/plain`)
NO_TORCH = "0.0"  # the version of torch where none took part
NEEDS_FULL = "a heavier run, left out here; `python -m runners run {} --full` measures it"


class Code(Record):
    """The code that measured: digests decide staleness, commit and dirty are for people."""

    digest: str  # of the experiment, without the programs that it finds by a pattern
    programs: dict[str, str] = {}  # their digests, by path; a run names its own in its settings
    commit: str | None = None  # checked out then; None outside a repository
    dirty: bool = False  # whether files differed from that commit


class Circumstances(Record):
    """The software and the environment of a command, on which results depend beside the machine."""

    python: Version
    torch: Version
    numpy: Version | None = None  # null: not known, or it took no part
    # Cores that ranks might use, as the kernel lists them: 0-3,8; null: not known.
    affinity: str | None = None
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES; null: not set
    huge_pages: str | None = None  # transparent: always, madvise or never; null: not known


class Canary(Record):
    """The time of one small, fixed piece of work before and after an experiment."""

    before_seconds: float = Field(gt=0)
    after_seconds: float = Field(gt=0)


class Quiet(Record):
    """The load of the machine around an experiment (`runners/core/measuring/quiet.py`)."""

    # Of the cores, used by other processes; null: the platform does not tell.
    load_before_share: float | None
    load_after_share: float | None
    canaries: dict[str, Canary]  # by name

    @property
    def was_busy(self) -> bool:
        """Whether other processes used more of the cores than around a quiet experiment."""
        return max(self.load_before_share or 0, self.load_after_share or 0) > MOST_LOAD_SHARE

    @property
    def was_quiet(self) -> bool:
        """Whether other processes left the cores alone, and a small product took the same time."""
        times = [sorted(vars(canary).values()) for canary in self.canaries.values()]
        apart = max((longer / shorter for shorter, longer in times), default=1.0) - 1
        return not self.was_busy and apart <= MOST_CANARY_SHARE


class Failure(Record):
    """The error of a rank or a run that did not complete."""

    kind: str  # out_of_memory, peer_lost, hang, timed_out, signal, exception
    message: str  # the first line of what was raised, as it was raised
    requested_bytes: int | None = None  # bytes that the refused allocation requested
    # Of out_of_memory: bytes held when the allocator refused, as the budget counts them: on CPU the
    # growth of the process's data segment since the budget was set, on an accelerator the growth of
    # what was requested of its allocator; null: not known.
    held_bytes: int | None = None
    rank: int | None = None  # null: ranks hang, and none is behind the others
    phase: str  # build, wrap, step, forward, backward, optimizer, …
    step: int | None = None  # training step of the failure, from 0; null before it
    # The last line of the experiment's own file that was running, as ddp.py:23, where the run was
    # not meant to end so.
    line: str | None = None
    signal: str | None = None  # that ended the process, such as SIGABRT
    exit_code: int | None = None  # of a process that left without a record


class Death(Record):
    """The declared death of a process: its rank, the phase, and the signal or the exit code."""

    rank: int
    phase: str
    signal: str | None = None  # such as SIGABRT; null for a process that exits
    exit_code: int | None = None  # null for one that a signal ends

    @model_validator(mode="after")
    def _ends_one_way(self) -> Self:
        is_named = self.signal is None or self.signal in Signals.__members__
        if not is_named or (self.signal is None) == (self.exit_code is None):
            raise ValueError("a death has a signal such as SIGKILL, or an exit code, and not both")
        return self

    def is_that_of(self, failure: Failure) -> bool:
        """Whether a failure is this death."""
        return all(getattr(failure, name) == value for name, value in vars(self).items())


class Layer(Record):
    """One layer of the model as this run placed it."""

    name: str
    kind: str
    weight_shape: Shape
    num_parameters: int
    bytes: int
    ranks: list[int]  # the ranks that hold it, whole or as shards
    is_sharded: bool  # each of these ranks holds a part of it, not the whole


class Model(Record):
    """The whole model, before any split."""

    num_parameters: int
    bytes: int
    dtype: str
    layers: list[Layer]
    value_bytes: int = 0  # of one parameter; it follows from both


class Held(Record):
    """The shapes into and out of a stage on one rank."""

    rank: int
    shape_in: Shape
    shape_out: Shape
    bytes: int  # bytes of what came out


class Move(Record):
    """One operation between ranks in a stage, from a metered pass."""

    operation: str
    source: int | None = None  # global rank; null: every rank sends
    destination: int | None = None  # global rank; null: every rank receives
    bytes: int  # payload as the rank with the largest payload sees it


class Stage(Record):
    """One stage of the data flow: its input, its operation, its output.

    Shapes, dtype, bytes and values are read off the tensors by the recorder. Its time is in
    `timing.stages` under the same name.
    """

    name: str
    rank: int | None  # null: the same on every rank
    operation: str
    shape_in: Shape
    shape_out: Shape
    dtype: str
    bytes: int  # bytes of what came out
    values: list[float]  # the first values of what came out
    ranks: list[Held] = []  # where ranks differ, each that passed it
    moves: list[Move] = []  # what travelled; of a run with a timeline


class RankEpoch(Record):
    """The results of one rank in an epoch; kept where ranks may differ."""

    rank: int
    loss: Loss
    parameter_digest: str


class Epoch(Record):
    """Training and validation after one pass over the samples; epochs count from 1."""

    epoch: int
    loss: Loss  # mean over the epoch's samples, all ranks
    accuracy: float | None
    validation_loss: Loss
    validation_accuracy: float | None
    ranks: list[RankEpoch]


class Validation(Record):
    """The last evaluation on samples that no rank trained on."""

    rank: int
    num_samples: int
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
    facts: dict[str, Setting]  # what else the step shows: loss, digest, class …


class RankRecord(Record):
    """The results of one rank."""

    rank: int
    status: Status
    failure: Failure | None = None
    num_parameters: int | None = None  # parameters this rank holds
    num_samples: int | None = None  # training samples this rank saw
    first_parameter_digest: str | None = None  # before any wrapper touched them
    start_parameter_digest: str | None = None  # when training started
    parameter_digest: str | None = None  # when training ended
    memory: Memory | None = None
    collectives: list[Collective] = []  # of one metered step
    measures: dict[str, Setting] = {}  # what the experiment itself counted or compared on this rank


class NonFinite(Record):
    """A value that JSON cannot carry; the field itself holds null."""

    field: str
    step: int | None
    kind: Literal["nan", "inf", "-inf"]


class Run(Record):
    """One run of an experiment: its settings, the expected outcome, and its results."""

    strategy: str
    world_size: int
    backend: Literal["gloo", "nccl"]
    device: Literal["cpu", "cuda"]
    seed: int
    settings: dict[str, Setting]
    expected_status: Status
    status: Status
    timing: Timing
    budget_bytes: int | None = None  # what each rank was allowed; null: no limit
    reason: str | None = None  # why it was skipped
    error: Failure | None = None  # the root cause among the ranks' failures
    passes: list[str] = []  # metered, timed, budgeted: the passes that ran
    allocator: dict[str, str] = {}  # environment of the ranks, by pass
    model: Model | None = None
    stages: list[Stage] = []
    epochs: list[Epoch] = []
    step_losses: list[Loss] = []  # the loss of each step, for the runs that keep it
    validation: Validation | None = None
    prediction: list[PredictionStep] = []
    ranks: list[RankRecord] = []
    quantities: dict[str, Quantity] = {}  # of each measure of its ranks
    printed: list[str] = []  # what rank 0 printed
    non_finite: list[NonFinite] = []
    nature: Nature = "real"  # paced: each stage lasts a set time; simulated: fake tensors
    expected_death: Death | None = None  # of a run that is meant to die; null: none was declared
    circumstances: Circumstances | None = None  # where they are not those of the whole trace
    label: str = ""  # the key of readers' words for the strategy; empty: the strategy
    # By field, without indices: the largest relative difference that fewer instructions of the
    # processor make, above rounding (`spread.py`); null: not measured.
    spread: dict[str, float] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it was a function of its settings, and had no ranks."""
        return self.passes == [PLAIN_PASS]

    @property
    def is_left_out(self) -> bool:
        """Whether it was skipped because only `run --full` measures it (`NEEDS_FULL`)."""
        return (self.reason or "").startswith(NEEDS_FULL.partition("{")[0])

    @property
    def why_skipped(self) -> str:
        """The reason in plain words, for a run that was skipped."""
        return (self.reason or "the run was skipped").replace("`", "")

    @property
    def is_surprise(self) -> bool:
        """Whether the run ended otherwise than declared; a skipped run never surprises."""
        if self.status == self.expected_status == "died" and self.expected_death and self.error:
            return not self.expected_death.is_that_of(self.error)
        return self.status not in (self.expected_status, "skipped")


class Trace(Guarded):
    """All runs of one experiment on one machine."""

    schema_version: Literal[2]
    experiment: str
    question: str  # what the experiment asks, in one sentence
    recorded_at: Moment  # when the last of its runs had ended
    machine: str
    code: Code
    circumstances: Circumstances  # under which its runs were measured
    quiet: Quiet | None = None  # what else the machine did meanwhile; null: not recorded
    shortened: bool = False  # its runs have the sizes of a try: only `run --short` keeps it
    runs: Annotated[dict[str, Run], Field(min_length=1)]

    @property
    def left_out(self) -> list[str]:
        """The runs that only `--full` measures."""
        return [name for name, run in self.runs.items() if run.is_left_out]


def trace_of(
    experiment: str,
    question: str,
    code: Code,
    circumstances: Circumstances,
    machine: str,
    runs: dict[str, Run],
    quiet: Quiet | None = None,
    *,
    shortened: bool = False,
) -> Trace:
    """A trace of these runs, recorded now; a run keeps circumstances of its own if they differ."""
    alike = {"circumstances": None}
    return Trace(
        schema_version=2, experiment=experiment, question=question, recorded_at=now(),
        machine=machine, code=code, circumstances=circumstances, quiet=quiet,
        shortened=shortened,
        runs={
            name: run.model_copy(update=alike) if run.circumstances == circumstances else run
            for name, run in runs.items()
        },
    )  # fmt: skip


class Accelerator(Record):
    """One accelerator of a machine."""

    name: str
    memory_bytes: int


class Machine(Guarded):
    """A machine; `name` is the name of its folder."""

    model_config = ConfigDict(extra="ignore")  # what former versions recorded too
    schema_version: Literal[1]
    name: str
    is_reference: bool
    cpu: str
    num_cores: int  # that ranks may use
    memory_bytes: int
    system: str
    python: Version
    torch: Version
    accelerators: list[Accelerator]
    caches: str = ""  # of a core, as the kernel shows them; empty: not known


def software(under: Circumstances | Machine) -> str:
    """The package that measured, with its version: torch, or Python where torch took no part."""
    has_torch = under.torch != NO_TORCH
    return f"torch {under.torch}" if has_torch else f"Python {under.python}"

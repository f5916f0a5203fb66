"""The outcome of one rank, which it sends to the launcher when it ends. No torch."""

from dataclasses import dataclass

from pydantic import ConfigDict

from proofbook.runners.core.trace.records import (
    Model,
    Move,
    NonFinite,
    PredictionStep,
    RankRecord,
    Stage,
    Validation,
)
from proofbook.runners.core.trace.schema import Quantity, Record, Status


class EpochPart(Record):
    """The part of one rank in an `Epoch`; None for values that it does not have."""

    epoch: int
    loss: float | None = None
    accuracy: float | None = None
    num_samples: int = 0
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    parameter_digest: str | None = None


@dataclass(frozen=True)
class Event:
    """An interval of a rank's activity, in nanoseconds of a wall clock.

    `peer` is the other rank of a send or a receive; None for a collective of all ranks. An
    "operation" is a stretch in which torch itself was at work, whatever phase the rank marked.
    """

    rank: int
    kind: str  # "compute", "communication" or "operation"
    name: str
    start_ns: int
    end_ns: int
    peer: int | None = None


class RankOutcome(RankRecord):
    """Everything one rank recorded in one pass, as it fills up."""

    model_config = ConfigDict(frozen=False)

    status: Status = "completed"
    model: Model | None = None
    stages: list[Stage] = []
    stage_seconds: dict[str, float] = {}
    stage_moves: dict[str, list[Move]] = {}
    epochs: list[EpochPart] = []
    step_losses: list[float | None] = []
    validation: Validation | None = None
    prediction: list[PredictionStep] = []
    prediction_seconds: dict[str, float] = {}
    step_seconds: list[float] = []
    events: list[Event] = []
    window_ns: tuple[int, int] | None = None
    non_finite: list[NonFinite] = []
    measured_seconds: dict[str, list[float]] = {}
    quantities: dict[str, Quantity] = {}  # of its measures

"""What one rank sends to the launcher when it ends: the raw material of a `Run`. No torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from runners.traces.measured import Collective, Memory, RankClock
from runners.traces.records import Failure, Model, NonFinite, PredictionStep, Stage
from runners.traces.schema import Setting, Status


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EpochPart(_Part):
    """What one rank knows of an epoch; None for what it does not see."""

    epoch: int
    loss: float | None = None
    accuracy: float | None = None
    num_samples: int = 0
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    parameter_digest: str | None = None


class ValidationPart(_Part):
    """One rank's last evaluation on the validation samples."""

    num_samples: int
    loss: float | None
    accuracy: float | None


class EventPart(_Part):
    """One event of the timeline's step, as `runners.meters.spans.Event`."""

    kind: str
    name: str
    start_ns: int
    end_ns: int
    peer: int | None


class MovePart(_Part):
    """One operation as one rank saw it; ranks are global, and None stands for every rank."""

    operation: str
    source: int | None
    destination: int | None
    bytes: int


class RankOutcome(_Part):
    """Everything one rank recorded in one pass."""

    rank: int
    status: Status = "completed"
    failure: Failure | None = None
    num_parameters: int | None = None
    num_samples: int | None = None
    first_parameter_digest: str | None = None
    start_parameter_digest: str | None = None
    parameter_digest: str | None = None
    memory: Memory | None = None
    collectives: list[Collective] = []
    model: Model | None = None
    stages: list[Stage] = []
    stage_seconds: dict[str, float] = {}
    stage_moves: dict[str, list[MovePart]] = {}
    epochs: list[EpochPart] = []
    step_losses: list[float | None] = []
    validation: ValidationPart | None = None
    prediction: list[PredictionStep] = []
    prediction_seconds: dict[str, float] = {}
    step_seconds: list[float] = []
    events: list[EventPart] = []
    window_ns: tuple[int, int] | None = None
    clocks: list[RankClock] = []
    non_finite: list[NonFinite] = []
    measures: dict[str, Setting] = {}
    measured_seconds: dict[str, list[float]] = {}

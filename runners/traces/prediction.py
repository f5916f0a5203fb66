"""What `prediction.json` holds: the models of what a machine's primitives promise for every run.

Written before the runs it predicts; the outcomes are in their traces (`records.py`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from runners.traces.measured import SampledSeconds
from runners.traces.schema import Record


class Interval(Record):
    """What is expected, and the range in which nine of ten outcomes should lie."""

    expected: float
    low: float
    high: float


class RunForecast(Record):
    """What one run was expected to need, before it ran."""

    peak_bytes: Interval | None = Field(description="of the rank that needs most")
    step_seconds: Interval | None = Field(description="the median step")
    reason: str | None = Field(default=None, description="why something was not predicted")
    recorded_at: str | None = Field(
        default=None, description="when it was predicted later than the prediction's other runs"
    )


class ChoiceForecast(Record):
    """Which of several runs was expected to be best, before they ran."""

    experiment: str
    name: str
    question: str
    runs: list[str]
    by: Literal["step_seconds", "peak_bytes"]
    expected: str = Field(description="the run that was expected to be best")


class Prediction(Record):
    """What a machine's primitives promise for every run: `prediction.json` of its folder."""

    schema_version: Literal[1]
    machine: str
    recorded_at: str = Field(description="UTC, ISO 8601, seconds; before any run it predicts")
    primitives: dict[str, SampledSeconds | float] = Field(
        description="by name with its unit: `matrix_flops_per_second`, `all_reduce_2_alpha_seconds`"
    )
    runs: dict[str, RunForecast] = Field(description="by `experiment.run`")
    choices: list[ChoiceForecast]
    fit: str | None = Field(
        default=None,
        description="machine and time of the fit of the intervals' constants, each experiment's "
        "without its own runs; null: they were set by hand",
    )

"""What a machine predicted of itself, held against what its runs then measured. Pure.

In: a machine's folder, with `prediction.json` and its traces. Out: for every run that was predicted
its expectation, its interval and its outcome; for every choice the run that was expected to be best
and the run that was; and how well the machine's word was worth taking.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from generator.content.shelf import Measured
from runners.traces.prediction import ChoiceForecast, Interval, RunForecast
from runners.traces.records import Run, Trace

Quantity = Literal["peak_bytes", "step_seconds"]
QUANTITIES: tuple[Quantity, ...] = ("peak_bytes", "step_seconds")


@dataclass(frozen=True)
class Predicted:
    """One number that was predicted.

    Attributes:
        path: the run, as `experiment.run`.
        quantity: what was predicted of it.
        expected: what was expected, with the range in which nine of ten outcomes should lie.
        outcome: what the run measured; None where it measured nothing of the kind.
        field: where that stands in the run.
        is_before: whether it was predicted before the experiment's first run began.
        left_out: why the outcome says nothing about the forecast.
    """

    path: str
    quantity: Quantity
    expected: Interval
    outcome: float | None
    field: str
    is_before: bool
    left_out: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it is held against the machine's word."""
        return self.outcome is not None and self.is_before and self.left_out is None

    @property
    def is_within(self) -> bool:
        """Whether the outcome lies in the interval."""
        return self.outcome is not None and self.expected.low <= self.outcome <= self.expected.high

    @property
    def error(self) -> float | None:
        """How far the forecast lies from the outcome, as a share of the outcome, signed."""
        if not self.outcome:
            return None
        return (self.expected.expected - self.outcome) / self.outcome


@dataclass(frozen=True)
class Chosen:
    """One choice: which run was expected to be best, and which was; None where none measured."""

    forecast: ChoiceForecast
    best: str | None
    is_before: bool

    @property
    def is_right(self) -> bool:
        """Whether the run expected to be best was best."""
        return self.best == self.forecast.expected


@dataclass(frozen=True)
class Calibration:
    """How well a machine's word was worth taking; shares and errors are None without outcomes."""

    num_outcomes: int
    within_share: float | None
    errors: dict[Quantity, float | None]  # median of absolute relative errors
    num_choices: int
    num_correct: int


def predicted(measured: Measured) -> list[Predicted]:
    """All that a machine predicted of runs that it has measured, in the order of the runs."""
    if measured.prediction is None:
        return []
    return [
        one
        for path, forecast in measured.prediction.runs.items()
        for one in _of_run(path, forecast, measured)
    ]


def _of_run(path: str, forecast: RunForecast, measured: Measured) -> Iterator[Predicted]:
    assert measured.prediction is not None
    experiment, _, name = path.partition(".")
    trace = measured.traces.get(experiment)
    run = trace.runs.get(name) if trace else None
    if trace is None or run is None:
        return
    said = forecast.recorded_at or measured.prediction.recorded_at
    for quantity in QUANTITIES:
        expected: Interval | None = getattr(forecast, quantity)
        if expected is not None:
            outcome, field = outcome_of(run, quantity)
            left_out = _left_out(run, outcome)
            is_before = trace.recorded_at >= said
            yield Predicted(path, quantity, expected, outcome, field, is_before, left_out)


def outcome_of(run: Run, quantity: Quantity) -> tuple[float | None, str]:
    """What a run measured of a quantity, and the field in which it stands."""
    if quantity == "step_seconds":
        median = run.timing.step.median_seconds if run.timing.step else None
        return median, "timing.step.median_seconds"
    peaks = [
        (one.memory.peak_bytes, place)
        for place, one in enumerate(run.ranks)
        if one.memory is not None and one.memory.peak_bytes is not None
    ]
    if not peaks:
        return None, ""
    most, place = max(peaks, key=lambda one: one[0])
    return most, f"ranks[{place}].memory.peak_bytes"


def _left_out(run: Run, outcome: float | None) -> str | None:
    """Why an outcome, or its absence, is not held against the forecast."""
    if run.status == "skipped":
        return run.reason or "the run was skipped"
    if run.nature == "simulated":
        return "simulated: nothing ran"
    if outcome is None:
        return f"the run ended {run.status.replace('_', ' ')} and measured none"
    return None


def chosen(measured: Measured) -> list[Chosen]:
    """Every choice whose runs the machine has measured, all of them."""
    if measured.prediction is None:
        return []
    found = []
    for forecast in measured.prediction.choices:
        trace = measured.traces.get(forecast.experiment)
        if trace is not None:
            is_before = trace.recorded_at >= measured.prediction.recorded_at
            found.append(Chosen(forecast, _best(forecast, trace), is_before))
    return found


def _best(forecast: ChoiceForecast, trace: Trace) -> str | None:
    outcomes: list[tuple[float, str]] = []
    for name in forecast.runs:
        run = trace.runs.get(name)
        outcome = outcome_of(run, forecast.by)[0] if run else None
        if outcome is None:
            return None
        outcomes.append((outcome, name))
    return min(outcomes)[1] if outcomes else None


def calibration(outcomes: Sequence[Predicted], choices: Sequence[Chosen]) -> Calibration:
    """How well a machine's word was worth taking, over what it said before it knew."""
    counted = [one for one in outcomes if one.counts]
    decided = [one for one in choices if one.best is not None and one.is_before]
    return Calibration(
        num_outcomes=len(counted),
        within_share=sum(one.is_within for one in counted) / len(counted) if counted else None,
        errors={quantity: _median_error(counted, quantity) for quantity in QUANTITIES},
        num_choices=len(decided),
        num_correct=sum(one.is_right for one in decided),
    )


def _median_error(outcomes: Sequence[Predicted], quantity: Quantity) -> float | None:
    errors = [
        abs(one.error) for one in outcomes if one.quantity == quantity and one.error is not None
    ]
    return statistics.median(errors) if errors else None

"""What a machine predicted, compared with what its runs then measured. Pure.

In: a machine's folder, with `prediction.json`, `reruns.json` and its traces. Out: for every run
that was predicted its forecast, its interval and its outcome; and, for peaks and for step times
apart, how many outcomes lie within their intervals, the median error, and the floor of that error.
Which strategy was expected to be best is judged in `choices.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from generator.content.shelf import Measured
from runners.traces.prediction import Interval, RunForecast
from runners.traces.records import Run
from runners.traces.reruns import QUANTITIES, Floor, Quantity, errors, floor, pairs
from runners.traces.schema import Nature

PROMISED_SHARE = 0.9  # of the outcomes, within their intervals
# Why a run that is not real says nothing about a forecast.
NOT_REAL: dict[Nature, str] = {
    "simulated": "simulated: nothing ran",
    "paced": "paced: its stages last as long as the settings say",
}


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
        """Whether the forecast is scored on it."""
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
class Coverage:
    """How many outcomes lie within their intervals, against the promise of the intervals."""

    num_outcomes: int
    num_within: int

    @property
    def share(self) -> float:
        """The share of the outcomes that lie within their intervals."""
        return self.num_within / self.num_outcomes

    @property
    def shortfall(self) -> float:
        """By how much the share falls short of the promise; 0 where it keeps it."""
        return max(0.0, PROMISED_SHARE - self.share)


@dataclass(frozen=True)
class Calibration:
    """How good the forecasts of one quantity were on a machine.

    Attributes:
        quantity: peaks, or step times.
        coverage: of their intervals.
        median_error: the median of the absolute relative errors; None where no outcome has one.
        floor: the same of predicting reruns from their predecessors; None where none was measured.
    """

    quantity: Quantity
    coverage: Coverage
    median_error: float | None
    floor: Floor | None


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
    """Why an outcome, or its absence, is not scored."""
    if run.status == "skipped":
        return run.why_skipped
    if run.nature != "real":
        return NOT_REAL[run.nature]
    if outcome is None:
        return f"the run ended {run.status.replace('_', ' ')} and measured none"
    return None


def rerun_errors(measured: Measured, quantity: Quantity) -> dict[str, float]:
    """The signed error of predicting each rerun from its predecessor, by `experiment.run`."""
    return errors(pairs(measured.reruns, measured.traces), quantity)


def floor_of(measured: Measured, quantity: Quantity) -> Floor | None:
    """The floor of a machine's errors; None where nothing was measured twice."""
    return floor(rerun_errors(measured, quantity).values())


def calibrations(measured: Measured) -> list[Calibration]:
    """How good a machine's forecasts were, for peaks and for step times apart."""
    counted = [one for one in predicted(measured) if one.counts]
    return [
        Calibration(
            quantity=quantity,
            coverage=Coverage(len(own), sum(one.is_within for one in own)),
            median_error=_median(abs(one.error) for one in own if one.error is not None),
            floor=floor_of(measured, quantity),
        )
        for quantity in QUANTITIES
        if (own := [one for one in counted if one.quantity == quantity])
    ]


def left_out(measured: Measured) -> dict[Quantity, Coverage]:
    """The coverage with constants that were fitted without the experiment that is scored."""
    found = measured.fit.without.values() if measured.fit else ()
    steps = Coverage(
        sum(one.num_steps for one in found), sum(one.num_steps_within for one in found)
    )
    peaks = Coverage(
        sum(one.num_peaks for one in found), sum(one.num_peaks_within for one in found)
    )
    both: dict[Quantity, Coverage] = {"peak_bytes": peaks, "step_seconds": steps}
    return {quantity: one for quantity, one in both.items() if one.num_outcomes}


def _median(numbers: Iterable[float]) -> float | None:
    known = list(numbers)
    return statistics.median(known) if known else None

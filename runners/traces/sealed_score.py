"""How sealed forecasts did on a machine: each beside its outcome, misses, wrong verdicts. No torch.

In: forecasts and outcomes, as `sealed_forecasts.py` reads them. Out: a `Score`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal

from pydantic import Field

from runners.traces.schema import Record
from runners.traces.sealed_forecasts import (
    LimitForecast,
    SealedForecasts,
    SealedOutcomes,
    SuiteForecast,
    SuiteOutcome,
)

LARGE_ERROR = 0.15  # a forecast that errs by more is a miss
What = Literal["suite peak", "suite payload", "allocated", "reserved"]


class Pair(Record):
    """One forecast beside its outcome."""

    id: str
    what: What
    forecast: int
    outcome: int

    @property
    def error(self) -> float:
        """Relative to the outcome."""
        return self.forecast / self.outcome - 1 if self.outcome else float(self.forecast > 0)

    @property
    def is_miss(self) -> bool:
        """Whether it errs by more than 15 %."""
        return abs(self.error) > LARGE_ERROR


class Score(Record):
    """How forecasts did on a machine."""

    pairs: list[Pair]
    wrong_verdicts: list[str] = Field(description="which fit and were not to, or the reverse")
    num_verdicts: int

    def of(self, what: What) -> list[Pair]:
        """The pairs of one kind."""
        return [one for one in self.pairs if one.what == what]

    def median_error(self, what: What) -> float | None:
        """Median of the absolute relative errors of one kind; None without any."""
        errors = [abs(one.error) for one in self.of(what)]
        return median(errors) if errors else None

    @property
    def misses(self) -> list[Pair]:
        """Each forecast that errs by more than 15 %."""
        return [one for one in self.pairs if one.is_miss]


def score(forecasts: SealedForecasts, outcomes: SealedOutcomes) -> Score:
    """Compare; what a machine did not run is left out."""
    by_id = {one.id: one for one in forecasts.near_limit}
    verdicts = [(one.id, one.fits == by_id[one.id].fits) for one in outcomes.near_limit]
    return Score(
        pairs=[*_suite_pairs(forecasts.suite, outcomes.suite), *_limit_pairs(by_id, outcomes)],
        wrong_verdicts=[name for name, is_right in verdicts if not is_right],
        num_verdicts=len(verdicts),
    )


def _suite_pairs(
    forecasts: Sequence[SuiteForecast], outcomes: Sequence[SuiteOutcome]
) -> Iterator[Pair]:
    by_id = {one.id: one for one in forecasts}
    for outcome in outcomes:
        forecast = by_id[outcome.id]
        peaks = forecast.peak_bytes, outcome.peak_bytes
        if peaks[0] is None or peaks[1] is None:
            continue
        yield Pair(id=outcome.id, what="suite peak", forecast=peaks[0], outcome=peaks[1])
        sent = forecast.sent_bytes, outcome.sent_bytes
        if any(sent):  # that a rank without peers sends nothing takes no forecast
            yield Pair(id=outcome.id, what="suite payload", forecast=sent[0], outcome=sent[1])


def _limit_pairs(by_id: dict[str, LimitForecast], outcomes: SealedOutcomes) -> Iterator[Pair]:
    for outcome in outcomes.near_limit:
        forecast = by_id[outcome.id]
        if not outcome.fits:
            continue  # it ended before its peak
        yield Pair(
            id=outcome.id,
            what="allocated",
            forecast=forecast.allocated_bytes,
            outcome=outcome.allocated_bytes,
        )
        yield Pair(
            id=outcome.id,
            what="reserved",
            forecast=forecast.reserved_within_limit_bytes,
            outcome=outcome.reserved_bytes,
        )

"""What `backtest.json` holds: how near today's forecasts come to a machine's committed runs. Pure.

`python -m runners simulate --score --keep` writes it beside the traces. The outcomes were known
when the model was written, which is why this is a backtest; what was forecast before the runs is in
`prediction.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from runners.traces.schema import Record

NEAR_SHARE = 0.01  # of a peak
LEAST_NEAR = 0.98
MOST_FLOORS = 1.5
LEAST_WITHIN, MOST_WITHIN = 0.85, 0.95
MOST_HALF_WIDTH = 0.35


class Aim(NamedTuple):
    """A number beside its aim, all as shares.

    Attributes:
        low, high: between which it should be; None where there is no such bound.
        num: of what it is a share, or over which it is a median.
    """

    name: Literal["near", "median_error", "within", "half_width"]
    found: float
    low: float | None
    high: float | None
    num: int

    @property
    def is_met(self) -> bool | None:
        """Whether the number is where it should be; None without any bound."""
        if self.low is None and self.high is None:
            return None
        is_low = self.low is not None and self.found < self.low
        return not is_low and (self.high is None or self.found <= self.high)


class Score(Record):
    """How near the forecasts of one machine come: `backtest.json` of its folder.

    Attributes:
        floor: the median error of predicting a rerun from its predecessor; None without reruns.
        num_peaks: forecast and metered; `num_near` of them are within `NEAR_SHARE`.
        num_steps: forecast and timed; `num_within` of them are in their intervals.
        median_error: of the steps, absolute; None where none was timed.
        median_half_width: of their intervals, as a share of what is expected.
    """

    schema_version: Literal[1]
    machine: str
    scored_at: str
    floor: float | None
    num_peaks: int
    num_near: int
    num_steps: int
    num_within: int
    median_error: float | None
    median_half_width: float | None

    def aims(self) -> Iterator[Aim]:
        """Each number with what was aimed at."""
        if self.num_peaks:
            share = self.num_near / self.num_peaks
            yield Aim("near", share, LEAST_NEAR, None, self.num_peaks)
        if self.median_error is None or self.median_half_width is None:
            return
        most = None if self.floor is None else MOST_FLOORS * self.floor
        yield Aim("median_error", self.median_error, None, most, self.num_steps)
        within = self.num_within / self.num_steps
        yield Aim("within", within, LEAST_WITHIN, MOST_WITHIN, self.num_steps)
        yield Aim("half_width", self.median_half_width, None, MOST_HALF_WIDTH, self.num_steps)

"""From a run's work and a machine's primitives: bytes and seconds, with intervals. Pure; no torch.

In: the `Work` that a simulation shows (`work.py`), and `primitives`, what `primitives.py` measured,
by name. Out: a `RunForecast`. A step is replayed (`replay.py`): what its ranks do one after
another, each part at the rate of its primitive, times the weight of its feature.

Intervals should hold nine of ten outcomes. Their width is the spread of the primitives that weigh
most, and beside it what the model itself is wrong by: `Constants`, which `fit.py` fits on measured
runs. `BY_HAND` holds those that were set without such a fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from runners.forecast.costs import Primitives
from runners.forecast.replay import (
    COMMUNICATING,
    FIXED,
    Seconds,
    Setting,
    UnknownSpeedError,
    Weights,
    seconds_of,
)
from runners.forecast.weights import BEGIN
from runners.forecast.work import Work
from runners.traces.fit import Constants
from runners.traces.prediction import Interval, RunForecast

# Where no fit is known. They were set after a look at runs of the reference machine; which runs is
# not recorded, so that they should not be scored on that machine.
BY_HAND = Constants(computing_error=0.15, communication_error=0.3, peak_error=0.005, weights=BEGIN)
# What is set to last so long lasts longer by the time that waking up takes.
SET_SHARE = 0.03
NINE_OF_TEN = 1.645  # standard deviations to either side
LEAST_BYTES = 65_536  # small tensors that a simulation of two steps does not hold


@dataclass(frozen=True)
class Step:
    """A step as predicted, before the constants say how wide its interval is.

    Attributes:
        parts: unweighted seconds by feature.
        weights: that they are taken with.
        spread: of the primitives, as one standard deviation of the logarithm.
    """

    parts: Seconds
    weights: Weights
    spread: float

    def seconds(self, features: Iterable[str]) -> float:
        """What some features take."""
        return sum(self.parts.get(f, 0.0) * self.weights.get(f, 1.0) for f in features)

    @property
    def set_seconds(self) -> float:
        """What is set rather than measured: sleep, and what passes over a link of a set speed."""
        return self.seconds(FIXED)

    @property
    def expected(self) -> float:
        """Seconds of the whole step."""
        return self.seconds(self.parts)

    @property
    def communication_share(self) -> float:
        """Of what is not set, the share that waits for communication."""
        rest = self.expected - self.set_seconds
        waiting = self.seconds(name for name in COMMUNICATING if name not in FIXED)
        return waiting / rest if rest > 0 else 0.0

    def weighted(self, weights: Weights) -> Step:
        """The same step with other weights."""
        return Step(self.parts, weights, self.spread)

    def interval(self, constants: Constants) -> Interval:
        """The interval that holds nine of ten outcomes, where the constants are right."""
        step = self.expected - self.set_seconds
        factor = math.exp(NINE_OF_TEN * self._deviation(constants))
        return Interval(
            expected=_rounded(self.expected),
            low=_rounded(step / factor + self.set_seconds),
            high=_rounded(step * factor + (1 + SET_SHARE) * self.set_seconds),
        )

    def _deviation(self, constants: Constants) -> float:
        """Errors of primitives are independent; the model's error is shared by runs of a kind."""
        share = self.communication_share
        return math.hypot(
            constants.computing_error * (1 - share),
            constants.communication_error * share,
            self.spread,
        )


def forecast_run(
    work: Work | None,
    primitives: Primitives,
    num_places: int,
    constants: Constants = BY_HAND,
    bits_per_second: int | None = None,
) -> RunForecast:
    """What a run will need.

    Args:
        work: of one step; None where no pass measures what a simulation tells.
        primitives: of this machine.
        num_places: ranks that can compute at once, each on a core or an accelerator of its own.
        constants: what the model is wrong by, and the weights of features.
        bits_per_second: of the link of each rank, where it has one of its own.
    """
    if work is None or work.reason is not None:
        reason = (work and work.reason) or "no pass measures what a simulation tells of it"
        return RunForecast(peak_bytes=None, step_seconds=None, reason=reason)
    peak = peak_interval(work.peak_bytes, constants) if work.peak_bytes else None
    try:
        step = step_of(work, primitives, num_places, constants.weights, bits_per_second)
    except UnknownSpeedError as error:
        return RunForecast(peak_bytes=peak, step_seconds=None, reason=str(error))
    return RunForecast(peak_bytes=peak, step_seconds=step.interval(constants) if step else None)


def step_of(
    work: Work,
    primitives: Primitives,
    num_places: int,
    weights: Weights,
    bits_per_second: int | None = None,
) -> Step | None:
    """The step of some work; None where nothing of it takes time.

    Raises:
        UnknownSpeedError: how fast ranks communicate was not measured here.
    """
    found = seconds_of(work, Setting(primitives, num_places, bits_per_second), weights)
    if found is None:
        return None
    clock, spread = found
    return Step(clock.parts, weights, spread)


def peak_interval(num_bytes: int, constants: Constants) -> Interval:
    """The interval of a peak."""
    slack = NINE_OF_TEN * constants.peak_error * num_bytes + LEAST_BYTES
    low, high = max(0.0, num_bytes - slack), num_bytes + slack
    return Interval(expected=float(num_bytes), low=low, high=high)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def best(forecasts: Iterable[tuple[str, Interval | None]]) -> str | None:
    """The run that is expected to need least; None where one of them was not predicted."""
    known = [(name, interval) for name, interval in forecasts]
    if not known or any(interval is None for _, interval in known):
        return None
    return min(known, key=lambda pair: pair[1].expected if pair[1] else math.inf)[0]

"""`python -m runners simulate --score`: forecasts from simulations, on committed traces.

In: the primitives of each machine of a folder, its traces and reruns. Out: how near forecasts come
to them. The reference machine's weights and constants are those that its other experiments give,
so that no run is forecast with what was fitted on its own experiment. Other machines are forecast
with what was fitted on the reference machine, again without the experiment: nothing of them is
fitted on. A forecast that was committed before its traces is scored by the machine's page; this
scores what would be forecast now.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from runners.forecast.fit import MeteredRun, Runs, TimedRun, fit, runs_of
from runners.traces.backtest import (
    LEAST_NEAR,
    LEAST_WITHIN,
    MOST_FLOORS,
    MOST_HALF_WIDTH,
    MOST_WITHIN,
    NEAR_SHARE,
    Score,
)
from runners.traces.files import NOT_TRACES, read, read_reruns
from runners.traces.fit import Fit
from runners.traces.reruns import errors, floor, pairs

AIMS = (
    f"aims: {LEAST_NEAR:.0%} of peaks; {MOST_FLOORS} times the floor; {LEAST_WITHIN:.0%} to "
    f"{MOST_WITHIN:.0%}; ±{MOST_HALF_WIDTH:.0%}"
)


@dataclass(frozen=True)
class Scored:
    """One step: forecast beside measured.

    Attributes:
        error: of the forecast, as a share of the outcome, signed.
        half_width: of the interval, as a share of what is expected.
    """

    run: str
    expected_seconds: float
    seconds: float
    error: float
    is_within: bool
    half_width: float


@dataclass(frozen=True)
class Backtest:
    """How near the forecasts of a machine come.

    Attributes:
        machine: its folder.
        floor: the median error of predicting a rerun from its predecessor; None without reruns.
        num_peaks: forecast and metered.
        num_near: of them, within `NEAR_SHARE`.
        steps: forecast and timed, the largest error first.
    """

    machine: str
    floor: float | None
    num_peaks: int
    num_near: int
    steps: Sequence[Scored]

    def score(self, scored_at: str) -> Score:
        """What the machine's page shows of it."""
        errors = [abs(one.error) for one in self.steps]
        widths = [one.half_width for one in self.steps]
        return Score(
            schema_version=1,
            machine=self.machine,
            scored_at=scored_at,
            floor=self.floor,
            num_peaks=self.num_peaks,
            num_near=self.num_near,
            num_steps=len(self.steps),
            num_within=sum(one.is_within for one in self.steps),
            median_error=statistics.median(errors) if errors else None,
            median_half_width=statistics.median(widths) if widths else None,
        )

    def lines(self) -> Iterator[str]:
        """All of it in words."""
        yield f"{self.machine}: {self.num_near} of {self.num_peaks} peaks within {NEAR_SHARE:.0%}"
        if not self.steps:
            return
        beside = "no reruns" if self.floor is None else f"floor {self.floor:.1%}"
        score = self.score("")
        share = score.num_within / score.num_steps
        yield f"  {score.num_steps} steps: median error {score.median_error:.1%} ({beside})"
        yield f"  {share:.1%} within their intervals, median width ±{score.median_half_width:.0%}"
        worst = ", ".join(f"{one.run} {one.error:+.0%}" for one in self.steps[:5])
        yield f"  furthest: {worst}"


def backtest(name: str, where: Path, runs: Runs, fitted: Fit) -> Backtest:
    """Score the runs of one machine.

    Args:
        name: of the machine.
        where: its folder.
        runs: those that were measured there.
        fitted: weights and constants, for each experiment without its own runs.
    """
    steps = [_scored(one, fitted) for one in runs.timed]
    return Backtest(
        machine=name,
        floor=_floor(where),
        num_peaks=len(runs.metered),
        num_near=sum(_is_near(one) for one in runs.metered),
        steps=sorted(steps, key=lambda one: -abs(one.error)),
    )


def _scored(one: TimedRun, fitted: Fit) -> Scored:
    constants = fitted.constants_for(one.experiment)
    own = one.weighted(constants.weights, again=True)
    interval = own.step.interval(constants)
    return Scored(
        run=own.path,
        expected_seconds=own.step.expected,
        seconds=own.seconds,
        error=own.error,
        is_within=own.is_within(constants),
        half_width=(interval.high - interval.low) / 2 / interval.expected,
    )


def _is_near(one: MeteredRun) -> bool:
    return abs(one.predicted_bytes / one.peak_bytes - 1) <= NEAR_SHARE


def _floor(where: Path) -> float | None:
    """The error of predicting a rerun from its predecessor, on this machine."""
    paths = [path for path in where.glob("*.json") if path.stem not in NOT_TRACES]
    found = floor(
        errors(pairs(read_reruns(where), {p.stem: read(p) for p in paths}), "step_seconds").values()
    )
    return found.median_error if found else None


def backtests(traces: Path) -> list[Backtest]:
    """Score every machine whose primitives are known, the reference machine first.

    Raises:
        FitError: the reference machine has no primitives, or no fresh run.
        TraceError: a file cannot be read.
    """
    folders = sorted(path.parent for path in traces.glob("**/prediction.json"))
    folders.sort(key=lambda one: not one.name.startswith("reference-"))
    runs = {folder: runs_of(folder) for folder in folders}
    reference = folders[0]
    fitted = fit(runs[reference], reference.name, "now")
    return [
        backtest(str(folder.relative_to(traces)), folder, own, fitted)
        for folder, own in runs.items()
        if own.experiments
    ]


def said(found: Sequence[Backtest], *, as_json: bool) -> Iterator[str]:
    """All scores as lines, or as JSON."""
    if as_json:
        yield json.dumps([asdict(one) for one in found], indent=1)
        return
    for one in found:
        yield from one.lines()
    yield AIMS

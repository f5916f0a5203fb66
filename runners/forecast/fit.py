"""`python -m runners fit`: fit weights and the constants of intervals, score them on other runs.

In: a machine's `prediction.json` (its primitives), its traces, and the work of its runs. Out:
`constants.json` in the machine's folder. The weights of a step's features come first
(`weights.py`), once for each experiment, without its runs. So weighted, each constant is the
smallest with which nine of ten of its runs lie within their intervals, rounded up:

    computing_error      real runs without communication
    communication_error  real runs that communicate for at least half of their step
    peak_error           real runs whose peak is predicted

Steps that contain a set time, a sleep or a shaped link, tell little of the model, and are not
fitted on. For each experiment all of them are fitted again on the runs of the others, and scored on
its own (leave one experiment out). `predict` uses these, so a forecast never rests on the run that
it is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runners.forecast.costs import Primitives
from runners.forecast.model import (
    BY_HAND,
    LEAST_BYTES,
    NINE_OF_TEN,
    Step,
    peak_interval,
    step_of,
)
from runners.forecast.replay import UnknownSpeedError, Weights
from runners.forecast.weights import BEGIN, Taken, fitted_weights
from runners.forecast.work import Work, complete_works
from runners.plans.experiment import Experiment, find, names, on_device
from runners.traces.files import (
    NOT_TRACES,
    is_stale,
    read,
    read_fit,
    read_machine,
    read_prediction,
)
from runners.traces.fit import Constants, Fit, LeftOut
from runners.traces.machine_records import Machine
from runners.traces.prediction import Interval
from runners.traces.records import Run, Trace
from runners.traces.reruns import peak_of

PROMISED_SHARE = 0.9
FEWEST = 10  # runs; with fewer a constant stays as it was set by hand
LEAST_SHARE = 0.5  # of a step, that communicates
NUM_REPLAYS = 3
STEPS = 10_000  # constants are multiples of one over so many


class FitError(ValueError):
    """There is nothing to fit on; the message says what to do."""


@dataclass(frozen=True)
class TimedRun:
    """A step that was predicted and measured.

    Attributes:
        replay: the step with other weights.
    """

    experiment: str
    run: str
    step: Step
    seconds: float
    replay: Callable[[Weights], Step | None] | None = None

    @property
    def path(self) -> str:
        """`experiment.run`."""
        return f"{self.experiment}.{self.run}"

    @property
    def deviation(self) -> float:
        """The standard deviation with which the interval just reaches the outcome."""
        return abs(math.log(self.seconds / self.step.expected)) / NINE_OF_TEN

    @property
    def error(self) -> float:
        """How far the forecast lies from the outcome, as a share of the outcome, signed."""
        return self.step.expected / self.seconds - 1

    def weighted(self, weights: Weights, *, again: bool = False) -> TimedRun:
        """The same run with other weights; replayed, where they may decide who waits for whom."""
        step = self.replay(weights) if again and self.replay else None
        return replace(self, step=step or self.step.weighted(weights))

    def is_within(self, constants: Constants) -> bool:
        """Whether the outcome lies in the interval that these constants give."""
        return _holds(self.step.interval(constants), self.seconds)


@dataclass(frozen=True)
class MeteredRun:
    """A peak that was predicted and measured."""

    experiment: str
    run: str
    predicted_bytes: int
    peak_bytes: int

    @property
    def path(self) -> str:
        """`experiment.run`."""
        return f"{self.experiment}.{self.run}"

    @property
    def deviation(self) -> float:
        """The relative error with which the interval just reaches the outcome."""
        beyond = max(0, abs(self.peak_bytes - self.predicted_bytes) - LEAST_BYTES)
        return beyond / NINE_OF_TEN / self.predicted_bytes

    def is_within(self, constants: Constants) -> bool:
        """Whether the outcome lies in the interval that these constants give."""
        return _holds(peak_interval(self.predicted_bytes, constants), self.peak_bytes)


@dataclass(frozen=True)
class Runs:
    """All runs that were predicted and measured."""

    timed: Sequence[TimedRun]
    metered: Sequence[MeteredRun]

    @property
    def experiments(self) -> list[str]:
        """Their experiments, sorted."""
        timed = {one.experiment for one in self.timed}
        return sorted(timed | {one.experiment for one in self.metered})

    def of(self, chosen: Callable[[str], bool]) -> Runs:
        """Those of some experiments."""
        return Runs(
            [one for one in self.timed if chosen(one.experiment)],
            [one for one in self.metered if chosen(one.experiment)],
        )

    def weighted(self, weights: Weights, *, again: bool = False) -> Runs:
        """All of them with other weights."""
        return Runs([one.weighted(weights, again=again) for one in self.timed], self.metered)

    @property
    def computing(self) -> list[TimedRun]:
        """On which `computing_error` is fitted."""
        return [one for one in self.timed if _is_free(one) and not one.step.communication_share]

    @property
    def communicating(self) -> list[TimedRun]:
        """On which `communication_error` is fitted."""
        return [
            one
            for one in self.timed
            if _is_free(one) and one.step.communication_share >= LEAST_SHARE
        ]


def _is_free(one: TimedRun) -> bool:
    return not one.step.set_seconds


def _holds(interval: Interval, outcome: float) -> bool:
    return interval.low <= outcome <= interval.high


def smallest(deviations: Iterable[float], otherwise: float) -> float:
    """The smallest constant that reaches nine of ten of these deviations, rounded up."""
    found = sorted(deviations)
    if len(found) < FEWEST:
        return otherwise
    reached = found[math.ceil(PROMISED_SHARE * len(found)) - 1]
    return math.ceil(reached * STEPS) / STEPS


def weights_of(runs: Runs) -> dict[str, float]:
    """The weights of the runs whose step is free."""
    free = [one for one in runs.timed if _is_free(one)]
    return fitted_weights([Taken(one.step.parts, one.seconds) for one in free])


def constants_of(runs: Runs, weights: Weights) -> Constants:
    """The constants with which nine of ten of these runs, so weighted, lie within."""
    computing = smallest(
        (_beyond(one.deviation, one.step.spread) for one in runs.computing), BY_HAND.computing_error
    )
    waiting = (
        _beyond(one.deviation, one.step.spread, computing * (1 - one.step.communication_share))
        / one.step.communication_share
        for one in runs.communicating
    )
    return Constants(
        computing_error=computing,
        communication_error=smallest(waiting, BY_HAND.communication_error),
        peak_error=smallest((one.deviation for one in runs.metered), BY_HAND.peak_error),
        weights=dict(weights),
    )


def _beyond(deviation: float, *known: float) -> float:
    """What a deviation needs beside what is known, since they add up in squares."""
    explained = math.hypot(*known)
    return math.sqrt(max(0.0, deviation * deviation - explained * explained))


def fit(runs: Runs, machine: str, now: str) -> Fit:
    """The constants of all runs, and for each experiment those of the others.

    Raises:
        FitError: there is no run to fit on.
    """
    if not runs.experiments:
        raise FitError("no fresh run here was predicted and measured; `python -m runners run` does")
    runs = settled(runs)
    weights = {name: weights_of(_without(runs, name)) for name in runs.experiments}
    judged = Runs([one.weighted(weights[one.experiment]) for one in runs.timed], runs.metered)
    return Fit(
        schema_version=1,
        machine=machine,
        fitted_at=now,
        constants=constants_of(judged, weights_of(runs)),
        computing_runs=[one.path for one in runs.computing],
        communication_runs=[one.path for one in runs.communicating],
        peak_runs=[one.path for one in runs.metered],
        without={name: _left_out(judged, name, weights[name]) for name in runs.experiments},
    )


def settled(runs: Runs) -> Runs:
    """The runs, replayed with the weights that they fit, which decide who waits for whom."""
    for _ in range(NUM_REPLAYS):
        runs = runs.weighted(weights_of(runs), again=True)
    return runs


def _without(runs: Runs, experiment: str) -> Runs:
    return runs.of(lambda one: one != experiment)


def _left_out(runs: Runs, experiment: str, weights: Weights) -> LeftOut:
    """The constants of the other experiments' runs, each of which has weights without its own."""
    constants = constants_of(_without(runs, experiment), weights)
    own = runs.of(lambda one: one == experiment)
    return LeftOut(
        constants=constants,
        num_steps=len(own.timed),
        num_steps_within=sum(one.is_within(constants) for one in own.timed),
        num_peaks=len(own.metered),
        num_peaks_within=sum(one.is_within(constants) for one in own.metered),
    )


def runs_of(where: Path) -> Runs:
    """What a machine's folder holds to fit on: fresh traces of real runs, as they are declared.

    Raises:
        FitError: the machine has no primitives.
        TraceError: a file of the folder cannot be read.
    """
    prediction = read_prediction(where)
    if prediction is None:
        raise FitError("this machine has no primitives; `python -m runners predict` measures them")
    paths = [path for path in sorted(where.glob("*.json")) if path.stem not in NOT_TRACES]
    traces = [one for one in map(read, paths) if one.experiment in names() and not is_stale(one)]
    experiments = [on_device(find(one.experiment), _device(one)) for one in traces]
    known = complete_works(experiments)
    found = Runs([], [])
    for trace, experiment in zip(traces, experiments, strict=True):
        one = _of_trace(trace, experiment, known, prediction.primitives, read_machine(where))
        found = Runs([*found.timed, *one.timed], [*found.metered, *one.metered])
    return found


def _device(trace: Trace) -> str:
    return next((run.device for run in trace.runs.values() if run.device != "cpu"), "cpu")


def _of_trace(
    trace: Trace,
    experiment: Experiment,
    known: Mapping[str, Work],
    primitives: Primitives,
    machine: Machine,
) -> Runs:
    timed: list[TimedRun] = []
    metered: list[MeteredRun] = []
    for name, run in trace.runs.items():
        plan, work = experiment.runs.get(name), known.get(f"{trace.experiment}.{name}")
        is_as_declared = plan is not None and run.settings == plan.settings.as_json()
        if plan is None or work is None or not is_as_declared or not _counts(run):
            continue
        replay = _replay(work, primitives, _places(machine, run), plan.link_bits_per_second)
        step = replay(BEGIN)
        if step and run.timing.step and "timed" in plan.passes:
            seconds = run.timing.step.median_seconds
            timed.append(TimedRun(trace.experiment, name, step, seconds, replay))
        peak = peak_of(run)
        if work.peak_bytes and peak and "metered" in plan.passes:
            metered.append(MeteredRun(trace.experiment, name, work.peak_bytes, peak))
    return Runs(timed, metered)


def _replay(
    work: Work, primitives: Primitives, places: int, bits_per_second: int | None
) -> Callable[[Weights], Step | None]:
    """The step of a run, as it is with given weights."""

    def replay(weights: Weights) -> Step | None:
        try:
            return step_of(work, primitives, places, weights, bits_per_second)
        except UnknownSpeedError:
            return None

    return replay


def _counts(run: Run) -> bool:
    return run.nature == "real" and run.status != "skipped"


def _places(machine: Machine, run: Run) -> int:
    """Ranks that can compute at once on that machine."""
    return len(machine.accelerators) if run.device == "cuda" else machine.num_cores


def known_fit(where: Path, others: Collection[Path]) -> Fit | None:
    """The fit of a machine's folder, else the first of the others'; None where there is none.

    Raises:
        TraceError: a file cannot be read.
    """
    for folder in (where, *others):
        found = read_fit(folder)
        if found is not None:
            return found
    return None


def lines(found: Fit, before: Fit | None) -> list[str]:
    """The fit as a person reads it."""
    then = before.constants if before else BY_HAND
    origin = f"fitted {before.fitted_at}" if before else "set by hand"
    runs = {
        "computing_error": found.computing_runs,
        "communication_error": found.communication_runs,
        "peak_error": found.peak_runs,
    }
    said = [
        f"{name} = {getattr(found.constants, name):g}, from {len(paths)} runs "
        f"(before: {getattr(then, name):g}, {origin})"
        for name, paths in runs.items()
    ]
    left_out = found.without.values()
    steps = sum(one.num_steps_within for one in left_out), sum(one.num_steps for one in left_out)
    peaks = sum(one.num_peaks_within for one in left_out), sum(one.num_peaks for one in left_out)
    return [
        *said,
        "with constants fitted on the other experiments, "
        f"{steps[0]} of {steps[1]} steps and {peaks[0]} of {peaks[1]} peaks lie within",
    ]

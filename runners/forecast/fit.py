"""`python -m runners fit`: fit the constants of the intervals, and score them on other runs.

In: a machine's `prediction.json` (its primitives), its traces, and what each experiment's
`forecast` says. Out: `constants.json` in the machine's folder. Each constant is the smallest with
which nine of ten of its runs lie within their intervals, rounded up:

    computing_error      real runs without communication
    communication_error  real runs that communicate for at least half of their step
    peak_error           real runs whose peak is predicted

Steps that contain a set time, a sleep or a shaped link, tell little of the model, and are not
fitted on. For each experiment all three are fitted again on the runs of the others, and scored on
its own (leave one experiment out). `predict` uses these, so a forecast never rests on the run that
it is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runners.forecast.model import (
    BY_HAND,
    LEAST_BYTES,
    NINE_OF_TEN,
    Primitives,
    Step,
    peak_interval,
    step_of,
)
from runners.plans.experiment import find, names, on_device
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
STEPS = 10_000  # constants are multiples of one over so many


class FitError(ValueError):
    """There is nothing to fit on; the message says what to do."""


@dataclass(frozen=True)
class TimedRun:
    """A step that was predicted and measured."""

    experiment: str
    run: str
    step: Step
    seconds: float

    @property
    def path(self) -> str:
        """`experiment.run`."""
        return f"{self.experiment}.{self.run}"

    @property
    def deviation(self) -> float:
        """The standard deviation with which the interval just reaches the outcome."""
        return abs(math.log(self.seconds / self.step.expected)) / NINE_OF_TEN

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


def fitted(runs: Runs) -> Constants:
    """The constants with which nine of ten of these runs lie within their intervals."""
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
    return Fit(
        schema_version=1,
        machine=machine,
        fitted_at=now,
        constants=fitted(runs),
        computing_runs=[one.path for one in runs.computing],
        communication_runs=[one.path for one in runs.communicating],
        peak_runs=[one.path for one in runs.metered],
        without={name: _left_out(runs, name) for name in runs.experiments},
    )


def _left_out(runs: Runs, experiment: str) -> LeftOut:
    constants = fitted(runs.of(lambda one: one != experiment))
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
    found = Runs([], [])
    for trace in map(read, paths):
        if trace.experiment in names() and not is_stale(trace):
            timed, metered = _of_trace(trace, prediction.primitives, read_machine(where))
            found = Runs([*found.timed, *timed], [*found.metered, *metered])
    return found


def _of_trace(
    trace: Trace, primitives: Primitives, machine: Machine
) -> tuple[list[TimedRun], list[MeteredRun]]:
    timed: list[TimedRun] = []
    metered: list[MeteredRun] = []
    for name, run in trace.runs.items():
        experiment = on_device(find(trace.experiment), run.device)
        plan = experiment.runs.get(name)
        is_as_declared = plan is not None and run.settings == plan.settings.as_json()
        if plan is None or experiment.forecast is None or not is_as_declared or not _counts(run):
            continue
        work = experiment.forecast(plan)
        step = step_of(work, primitives, _places(machine, run)) if work else None
        if step and run.timing.step and "timed" in plan.passes:
            timed.append(TimedRun(trace.experiment, name, step, run.timing.step.median_seconds))
        peak = peak_of(run)
        if work and work.peak_bytes and peak and "metered" in plan.passes:
            metered.append(MeteredRun(trace.experiment, name, work.peak_bytes, peak))
    return timed, metered


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

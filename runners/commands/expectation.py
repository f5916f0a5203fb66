"""What the dry run expects of one run, before it is measured.

In: an experiment and the name of a run, declared or changed. Out: lines: the peak and the payload
of its simulation, and from the machine's primitives the time of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

from runners.forecast.fit import known_fit
from runners.forecast.model import BY_HAND
from runners.forecast.predict import predicted_run
from runners.forecast.work import work_of
from runners.measuring import measure
from runners.plans.experiment import Experiment
from runners.simulate.step_log import SimulatedSteps
from runners.simulate.suite import Wanted, simulate
from runners.traces import machine
from runners.traces.files import read_prediction
from runners.traces.prediction import Interval, RunForecast

NO_PRIMITIVES = "unknown until `python -m runners predict` has measured this machine"


def expected_lines(experiment: Experiment, run: str) -> tuple[list[str], bool]:
    """What a simulation of a run expects, a line each, or why there is none; whether it failed."""
    plan = experiment.runs[run]
    (simulated,) = simulate([Wanted.of(experiment, run, plan)], num_workers=1).runs
    if simulated.reason is not None:
        how = "failed" if simulated.has_failed else "expects nothing"
        return [f"the dry run {how}: {simulated.reason}"], simulated.has_failed
    told = [f"  {line}" for line in _lines(experiment, run, simulated)]
    return ["the dry run expects", *told], False


def _lines(experiment: Experiment, run: str, simulated: SimulatedSteps) -> Iterator[str]:
    forecast = _forecast(experiment, run, simulated)
    if simulated.ranks and simulated.ranks[0].peak_bytes:
        peak = max(log.peak_bytes or 0 for log in simulated.ranks)
        yield f"peak memory of the fullest rank: {_mebibytes(peak)}"
    payload = max((sum(log.payload_bytes.values()) for log in simulated.ranks), default=0)
    if payload:
        yield f"payload of a step: {_mebibytes(payload)} on the busiest rank"
    if "timed" not in experiment.runs[run].passes:
        return
    if forecast is None:
        yield f"step: {NO_PRIMITIVES}"
    elif forecast.step_seconds is not None:
        yield f"step: {_milliseconds(forecast.step_seconds)}"


def _forecast(experiment: Experiment, run: str, simulated: SimulatedSteps) -> RunForecast | None:
    """From this machine's primitives; None where there are none."""
    where = measure.folder()
    prediction = read_prediction(where)
    if prediction is None:
        return None
    fit = known_fit(where, sorted(machine.TRACES.glob("reference-*")))
    constants = fit.constants_for(experiment.name) if fit else BY_HAND
    plan = experiment.runs[run]
    places = machine.num_places(machine.device_kind())
    return predicted_run(work_of(simulated, plan), plan, prediction.primitives, places, constants)


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.3f} MiB"


def _milliseconds(one: Interval) -> str:
    expected, low, high = (1000 * value for value in (one.expected, one.low, one.high))
    return f"{expected:.3g} ms, in nine of ten cases {low:.3g} to {high:.3g}"

"""What the dry run expects of one run, before it is measured.

In: an experiment and the name of a run, declared or changed. Out: lines: the peak and the payload
of its simulation.
"""

from __future__ import annotations

from collections.abc import Iterator

from runners.plans.experiment import Experiment
from runners.simulate.log import SimulatedRun
from runners.simulate.suite import Wanted, simulate


def expected_lines(experiment: Experiment, run: str) -> tuple[list[str], bool]:
    """What a simulation of a run expects, a line each, or why there is none; whether it failed."""
    plan = experiment.runs[run]
    (simulated,) = simulate([Wanted(experiment.name, run, plan)], num_workers=1).runs
    if simulated.reason is not None:
        how = "failed" if simulated.has_failed else "expects nothing"
        return [f"the dry run {how}: {simulated.reason}"], simulated.has_failed
    return ["the dry run expects", *(f"  {line}" for line in _lines(simulated))], False


def _lines(simulated: SimulatedRun) -> Iterator[str]:
    if simulated.ranks and simulated.ranks[0].peak_bytes:
        peak = max(log.peak_bytes or 0 for log in simulated.ranks)
        yield f"peak memory of the fullest rank: {_mebibytes(peak)}"
    payload = max((sum(log.payload_bytes.values()) for log in simulated.ranks), default=0)
    if payload:
        yield f"payload of a step: {_mebibytes(payload)} on the busiest rank"


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.3f} MiB"

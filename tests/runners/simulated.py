"""What simulations say of runs, beside which tests put what real ranks need."""

from __future__ import annotations

from runners.forecast.work import works
from runners.plans.experiment import find


def simulated_peak(experiment: str, run: str) -> int:
    """The peak of a run's fullest rank."""
    peak = works([find(experiment)])[f"{experiment}.{run}"].peak_bytes
    assert peak is not None
    return peak

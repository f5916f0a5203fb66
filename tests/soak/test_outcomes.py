"""Budgets refuse every time: each run of `large_model` twenty times, always as declared."""

import pytest

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.measuring.measure import measure_run
from proofbook.runners.traces.summary import how_it_ended

REPEATS = 20


@pytest.mark.soak
@pytest.mark.ranks
@pytest.mark.timeout(3 * 3600)
def test_every_outcome_is_as_declared_twenty_times_of_twenty():
    experiment = find("large_model")
    with Launcher() as launcher:
        for name in experiment.runs:
            runs = [measure_run(launcher, experiment, name) for _ in range(REPEATS)]
            assert {how_it_ended(run) for run in runs if run.is_surprise} == set(), name

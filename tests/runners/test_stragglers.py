"""Slow ranks against sums by hand and against chance."""

import pytest

from runners.plans.experiment import find

RUNS = find("stragglers").runs


@pytest.mark.parametrize(("name", "between"), [("sometimes", 1), ("sometimes_local", 8)])
def test_a_training_should_take_the_sum_of_what_each_stretch_waits_for(name, between):
    settings = RUNS[name].settings
    total, own = 0.0, settings.lengths()
    for start in range(0, 24, between):
        stretch = [0.0] * 4
        for rank in range(4):
            for step in range(start, start + between):
                stretch[rank] += own[rank][step]
        total += max(stretch)
    assert settings.closed_forms()["expected_seconds"] == pytest.approx(total)

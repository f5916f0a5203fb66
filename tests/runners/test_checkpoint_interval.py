"""The intervals between checkpoints that lose least, against a search for them and replays."""

from statistics import mean

import pytest

from proofbook.runners.closed_forms.checkpoint_interval import (
    Costs,
    daly_seconds,
    expected_seconds,
    replay,
    young_seconds,
)

COSTS = Costs(step_seconds=0.01, checkpoint_seconds=0.05, restart_seconds=3.0, mtbf_seconds=60.0)


def test_youngs_interval_is_where_first_order_losses_are_least():
    def lost(seconds):
        return COSTS.checkpoint_seconds / seconds + seconds / (2 * COSTS.mtbf_seconds)

    tried = [0.01 * k for k in range(1, 10000)]
    assert young_seconds(COSTS) == pytest.approx(min(tried, key=lost), abs=0.01)


def test_dalys_interval_is_where_the_closed_form_is_least():
    fine = Costs(0.0001, 0.05, 3.0, 10.0)
    best = min(range(100, 20000, 20), key=lambda k: expected_seconds(fine, k, 10**7))
    assert daly_seconds(fine) == pytest.approx(best * 0.0001, rel=0.01)
    assert daly_seconds(Costs(0.1, 5.0, 1.0, 2.0)) == 2.0


def test_failures_at_random_take_on_average_what_the_closed_form_says():
    never = Costs(0.01, 0.05, 3.0, 1e12)
    assert replay(never, 4, 10, seed=0) == pytest.approx(3 * (4 * 0.01 + 0.05))
    taken = mean(replay(COSTS, 100, 10000, seed) for seed in range(400))
    assert taken == pytest.approx(expected_seconds(COSTS, 100, 10000), rel=0.01)

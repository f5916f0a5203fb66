"""The intervals between checkpoints that lose least, against a search for them."""

import pytest

from runners.plans.checkpoint_interval import Costs, daly_seconds, expected_seconds, young_seconds

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

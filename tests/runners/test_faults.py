"""Replays of faults against a walk step by step, and the intervals against closed forms."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from runners.experiments import faults
from runners.experiments.faults.replay import (
    Costs,
    daly_seconds,
    expected_seconds,
    replay,
    young_seconds,
)

COSTS = Costs(step_seconds=0.01, checkpoint_seconds=0.05, restart_seconds=3.0, mtbf_seconds=60.0)


def naive(costs: Costs, between: int, num_steps: int, seed: int) -> float:
    """The same training walked one step and one checkpoint at a time."""
    source = random.Random(seed)
    saved, now, failure = 0, 0.0, source.expovariate(1 / costs.mtbf_seconds)
    while saved < num_steps:
        took = between * costs.step_seconds + costs.checkpoint_seconds
        if now + took <= failure:
            now, saved = now + took, saved + between
            continue
        now = failure + costs.restart_seconds
        failure += source.expovariate(1 / costs.mtbf_seconds)
        while failure < now:
            now = failure + costs.restart_seconds
            failure += source.expovariate(1 / costs.mtbf_seconds)
    return now


@pytest.mark.parametrize("between", [10, 245, 2000])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_replay_is_the_walk_one_checkpoint_at_a_time(between: int, seed: int) -> None:
    num_steps = 20 * between
    assert replay(COSTS, between, num_steps, seed) == pytest.approx(
        naive(COSTS, between, num_steps, seed), rel=1e-9
    )


def test_without_failures_a_replay_is_work_and_checkpoints() -> None:
    costs = Costs(0.01, 0.05, 3.0, 1e12)
    assert replay(costs, 100, 1000, 1) == pytest.approx(10 * (100 * 0.01 + 0.05))
    assert expected_seconds(costs, 100, 1000) == pytest.approx(10.5, rel=1e-6)


def test_youngs_interval_is_where_first_order_losses_are_least() -> None:
    def lost(seconds: float) -> float:
        return COSTS.checkpoint_seconds / seconds + seconds / (2 * COSTS.mtbf_seconds)

    tried = [0.01 * k for k in range(1, 10000)]
    assert young_seconds(COSTS) == pytest.approx(min(tried, key=lost), abs=0.01)


def test_dalys_interval_is_where_the_closed_form_is_least() -> None:
    fine = Costs(0.0001, 0.05, 3.0, 10.0)
    best = min(range(100, 20000, 20), key=lambda k: expected_seconds(fine, k, 10**7))
    assert daly_seconds(fine) == pytest.approx(best * 0.0001, rel=0.01)
    assert daly_seconds(Costs(0.1, 5.0, 1.0, 2.0)) == 2.0


def test_deaths_follow_from_the_seed_and_lose_what_was_not_saved() -> None:
    plan = faults.RUNS["killed_three_times"]
    steps, saved = plan.settings.death_steps, plan.settings.last_saved_steps
    assert saved == [8 * math.floor(step / 8) for step in steps]
    torn = faults.RUNS["killed_while_saving"].settings
    assert torn.num_steps_at_risk == 8


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"moment": "noon"}, "moment must be step or save"),
        ({"num_deaths": 30}, "there are no more moments"),
        ({"width": 0}, "width must be a whole number above zero"),
    ],
)
def test_an_impossible_death_is_refused_in_one_line(changed: dict, said: str) -> None:
    plan = faults.RUNS["killed"]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))

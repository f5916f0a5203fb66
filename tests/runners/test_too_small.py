"""The break-even against times whose crossing is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from runners.experiments.too_small import RUNS
from runners.experiments.too_small.break_even import break_even, spread
from runners.traces.schema import Setting

SIZES = [1000 * 2**power for power in range(8)]


def alone(size: int) -> float:
    """Seconds that grow with the size."""
    return 1e-6 * size


def shared(size: int) -> float:
    """Half of them, and a start; the same as `alone` at twenty thousand."""
    return 0.01 + 0.5e-6 * size


def test_two_straight_lines_meet_where_they_meet() -> None:
    found = break_even(SIZES, [[alone(s)] for s in SIZES], [[shared(s)] for s in SIZES])
    assert found.place == "inside"
    assert found.size == pytest.approx(20000, rel=0.05)


def test_a_size_that_is_met_exactly_is_the_break_even() -> None:
    assert break_even([10, 20, 40], [[1], [1], [1]], [[2], [1], [0.5]]).size == pytest.approx(20)


def test_where_nothing_is_met_the_nearest_size_is_a_bound() -> None:
    never = break_even([10, 20], [[1], [1]], [[2], [2]])
    always = break_even([10, 20], [[2], [2]], [[1], [1]])
    assert (never.size, never.place) == (20, "beyond")
    assert (always.size, always.place) == (10, "below")


def test_what_counts_is_the_last_size_that_loses() -> None:
    found = break_even([10, 20, 40, 80], [[1]] * 4, [[0.5], [2], [2], [0.5]])
    assert 40 < found.size < 80


def noisy(seconds: Callable[[int], float], spread_share: float, seed: int) -> list[list[float]]:
    """SampledSeconds about a line."""
    source = random.Random(seed)
    return [[seconds(s) * source.gauss(1, spread_share) for _ in range(20)] for s in SIZES]


def test_noisier_samples_spread_wider_about_the_same_break_even() -> None:
    calm, loud = (
        spread(SIZES, noisy(alone, share, 1), noisy(shared, share, 2), seed=3)
        for share in (0.01, 0.1)
    )
    for one in (calm, loud):
        assert one.low < 20600
        assert one.high > 19400
        assert one.inside_share == 1
    assert loud.high / loud.low > 2 * (calm.high / calm.low - 1) + 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"widths": [16, 16]}, "must ascend"),
        ({"widths": [16]}, "at least two"),
        ({"widths": [0, 16]}, "above zero"),
        ({"global_batch_size": 9}, "not divisible by 2 ranks"),
    ],
)
def test_what_is_no_sweep_is_refused(changed: dict[str, Setting], said: str) -> None:
    plan = RUNS["sweep"]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))

"""The break-even against times whose crossing is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from runners.experiments.too_small import break_even, redrawn

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


def test_where_nothing_is_met_the_nearest_size_is_a_bound() -> None:
    never = break_even([10, 20], [[1], [1]], [[2], [2]])
    always = break_even([10, 20], [[2], [2]], [[1], [1]])
    assert (never.size, never.place) == (20, "beyond")
    assert (always.size, always.place) == (10, "below")


def test_what_counts_is_the_last_size_that_loses() -> None:
    found = break_even([10, 20, 40, 80], [[1]] * 4, [[0.5], [2], [2], [0.5]])
    assert 40 < found.size < 80


def noisy(seconds: Callable[[int], float], share: float, seed: int) -> list[list[float]]:
    """Samples about a line."""
    source = random.Random(seed)
    return [[seconds(s) * source.gauss(1, share) for _ in range(20)] for s in SIZES]


def test_noisier_samples_spread_wider_about_the_same_break_even() -> None:
    def spread(share: float) -> tuple[float, float]:
        draws = redrawn(SIZES, noisy(alone, share, 1), noisy(shared, share, 2), seed=3)
        sizes = sorted(one.size for one in draws)
        return sizes[25], sizes[-25]

    calm, loud = spread(0.01), spread(0.1)
    assert max(calm[0], loud[0]) < 20600
    assert min(calm[1], loud[1]) > 19400
    assert loud[1] / loud[0] > calm[1] / calm[0]

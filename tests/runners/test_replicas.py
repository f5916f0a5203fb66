"""How parts hand out samples."""

from __future__ import annotations

import pytest

from runners.experiments.replicas import parts

pytestmark = pytest.mark.ranks


def numbers(values: object) -> list[float]:
    """A fact that is a list of numbers."""
    assert isinstance(values, list)
    return [float(v) for v in values]


@pytest.mark.parametrize("skew", [0, 4, 10, 16])
def test_parts_hand_out_every_row_once(skew: int) -> None:
    sizes = parts(100, 4, skew)
    assert sum(sizes) == 100
    assert min(sizes) > 0


def test_a_skew_that_leaves_a_rank_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves rank 0 without samples"):
        parts(100, 4, 17)

"""The closed forms that runners and content share, against counting by hand."""

from __future__ import annotations

import pytest

from runners.plans.closed_forms import (
    pipeline_idle_share,
    ring_bytes,
    share_bytes,
)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_a_ring_sends_each_part_on_until_every_rank_has_every_sum(ranks: int) -> None:
    part, sent = 12, 0
    for _ in ("sum the parts", "share the sums out"):
        for _ in range(ranks - 1):
            sent += part
    assert ring_bytes(part * ranks, ranks) == pytest.approx(sent)
    assert share_bytes(part * ranks, ranks) == pytest.approx(sent / 2)


@pytest.mark.parametrize(("units", "stages"), [(1, 4), (4, 4), (16, 4), (8, 2), (8, 1)])
def test_a_rank_of_a_pipeline_waits_while_it_fills_and_drains(units: int, stages: int) -> None:
    last_ends = max(stage + unit + 1 for stage in range(stages) for unit in range(units))
    assert pipeline_idle_share(units, stages) == pytest.approx((last_ends - units) / last_ends)

"""What a shaped link lets through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runners.experiments.shaped_link import RUNS
from runners.plans.experiment import find

GRADIENT_BYTES = 4 * 4 * (256 * 256 + 256)  # four layers; two ranks send each other all of it


def test_what_a_link_lets_through_follows_from_the_setting() -> None:
    for plan in find("shaped_link").runs.values():
        assert plan.link_bits_per_second == plan.settings.link_bits_per_second
        assert plan.own_network
    slow = RUNS["mbit_100"].settings
    assert slow.transfer_seconds == pytest.approx(GRADIENT_BYTES * 8 / 100e6)
    each = RUNS["reduced_each"].settings
    assert each.transfer_seconds == pytest.approx(4 * GRADIENT_BYTES * 8 / 400e6)


@pytest.mark.parametrize(
    ("changed", "world_size", "words"),
    [
        ({"num_steps": 3}, 2, "num_steps"),
        ({"num_reductions": 3}, 2, "num_reductions"),
        ({"link_bits_per_second": 0}, 2, "link_bits_per_second"),
        ({}, 1, "world_size"),
    ],
)
def test_impossible_settings_are_refused(
    changed: dict[str, int], world_size: int, words: str
) -> None:
    plan = RUNS["reduced_each"]
    with pytest.raises(ValueError, match=words):
        replace(plan, world_size=world_size, settings=plan.settings.changed(changed))

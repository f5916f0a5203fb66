"""One followed step under FSDP, against closed forms and the unsharded model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from runners.experiments.fsdp_step import RUNS
from runners.traces.records import Run

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
WIDTHS = (24, 128, 128, 4)
MODEL = 4 * sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(WIDTHS))


def test_each_layer_is_gathered_for_forward_and_for_backward_and_its_gradient_reduced_once(
    run: Measure,
) -> None:
    followed = run("fsdp_step", "fsdp")
    for rank in followed.ranks:
        sent = {one.operation: (one.count, one.bytes) for one in rank.collectives}
        assert sent == {"all_gather": (6, 2 * MODEL), "reduce_scatter": (3, MODEL)}


def test_a_weight_is_whole_between_gather_and_reshard_and_its_gradient_a_shard(
    run: Measure,
) -> None:
    stages = {one.name: one for one in run("fsdp_step", "fsdp").stages}
    shard, whole = [WIDTHS[1] // 2, WIDTHS[0]], [WIDTHS[1], WIDTHS[0]]
    assert (stages["gather"].shape_in, stages["gather"].shape_out) == (shard, whole)
    assert (stages["reshard"].shape_in, stages["reshard"].shape_out) == (whole, shard)
    assert stages["backward"].shape_out == stages["update"].shape_out == shard


def test_two_ranks_under_fsdp_have_the_losses_of_one_device_with_both_batches(run: Measure) -> None:
    sharded, whole = run("fsdp_step", "fsdp"), run("fsdp_step", "single")
    assert RUNS["single"].settings.batch_size == 2 * RUNS["fsdp"].settings.batch_size
    assert [one.loss for one in sharded.epochs] == pytest.approx(
        [one.loss for one in whole.epochs], rel=1e-4
    )

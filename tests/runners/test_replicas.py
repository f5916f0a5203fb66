"""What the DDP topic teaches, against oracles: closed forms, equal programs, exact sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from runners.experiments.replicas import parts
from runners.traces.records import PredictionStep, Run

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
LAYER_BYTES = 4 * (512 * 512 + 512)


def shown(run: Run, name: str) -> PredictionStep:
    """A step of a run's prediction by its name."""
    (step,) = [s for s in run.prediction if s.name == name]
    return step


def numbers(values: object) -> list[float]:
    """A fact that is a list of numbers."""
    assert isinstance(values, list)
    return [float(v) for v in values]


def losses(run: Run) -> list[float]:
    """The loss of every epoch."""
    return [epoch.loss or math.nan for epoch in run.epochs]


@pytest.mark.parametrize("skew", [0, 4, 10, 16])
def test_parts_hand_out_every_row_once(skew: int) -> None:
    sizes = parts(100, 4, skew)
    assert sum(sizes) == 100
    assert min(sizes) > 0


def test_a_skew_that_leaves_a_rank_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves rank 0 without samples"):
        parts(100, 4, 17)


@pytest.mark.parametrize("name", ["equal", "unequal_weighted", "layer_norm"])
def test_the_mean_of_the_ranks_is_the_gradient_of_the_batch(run: Measure, name: str) -> None:
    apart = numbers(shown(run("replicas", name), "compare").facts["relative_differences"])
    assert len(apart) == 4
    assert max(apart) < 1e-13


@pytest.mark.parametrize("name", ["unequal", "batch_norm"])
def test_parts_that_weigh_wrongly_or_layers_across_rows_break_it(run: Measure, name: str) -> None:
    apart = numbers(shown(run("replicas", name), "compare").facts["relative_differences"])
    assert min(apart) > 0.01


def test_losses_of_unequal_parts_average_by_their_rows(run: Measure) -> None:
    unequal = run("replicas", "unequal")
    facts = shown(unequal, "step").facts
    own, rows = numbers(facts["losses"]), numbers(facts["num_samples"])
    whole = sum(loss * count for loss, count in zip(own, rows, strict=True)) / sum(rows)
    assert shown(unequal, "compare").facts["loss"] == pytest.approx(whole, rel=1e-12)
    assert sum(own) / 4 != pytest.approx(whole, rel=1e-4)


def test_running_statistics_part_in_a_step_and_are_rank_zero_s_in_the_next(run: Measure) -> None:
    facts = shown(run("replicas", "batch_norm"), "buffers").facts
    after, met = facts["digests_after"], facts["digests_met"]
    assert isinstance(after, list)
    assert len(set(after)) == 4
    assert met == [after[0]] * 4


@pytest.mark.parametrize(
    ("name", "given", "distinct"), [("sampled_padded", 12, 10), ("sampled_dropped", 8, 8)]
)
def test_a_sampler_repeats_rows_or_drops_them(
    run: Measure, name: str, given: int, distinct: int
) -> None:
    sampled = run("replicas", name)
    facts = shown(sampled, "samples").facts
    assert (facts["num_given"], facts["num_distinct"]) == (given, distinct)
    orders = shown(sampled, "epochs").facts
    assert (orders["num_orders_without_epoch"], orders["num_orders_with_epoch"]) == (1, 3)


def test_ranks_with_one_seed_draw_one_mask(run: Measure) -> None:
    alike, apart = run("replicas", "drawn_alike"), run("replicas", "drawn_apart")
    assert shown(alike, "dropout").facts["num_distinct"] == 1
    assert shown(apart, "dropout").facts["num_distinct"] == 4


def test_averaging_parameters_each_step_is_averaging_gradients_for_sgd_alone(run: Measure) -> None:
    gradients, parameters = run("ddp", "ddp_fp64"), run("averaging", "each_step")
    assert losses(parameters) == pytest.approx(losses(gradients), rel=1e-12)
    adam = losses(run("averaging", "gradients_adam"))
    assert losses(run("averaging", "each_step_adam")) != pytest.approx(adam, rel=0.01)


def test_replicas_part_further_the_longer_they_are_silent(run: Measure) -> None:
    apart = [
        max(numbers(shown(run("averaging", name), "average").facts["distances"]))
        for name in ("each_step", "each_epoch", "at_end")
    ]
    assert apart == sorted(apart)
    assert apart[0] * 3 < apart[-1]


def test_accumulated_gradients_are_those_of_the_large_batch(run: Measure) -> None:
    grown, accumulated = run("global_batch", "grown"), run("global_batch", "accumulated")
    assert losses(accumulated) == pytest.approx(losses(grown), rel=1e-12)


@pytest.mark.parametrize(("name", "count"), [("accumulated", 1), ("reduced_each", 4)])
def test_without_no_sync_every_part_is_exchanged(run: Measure, name: str, count: int) -> None:
    (reduced,) = run("global_batch", name).ranks[0].collectives
    parameters = 10 * 64 + 64 + 64 * 4 + 4
    assert (reduced.operation, reduced.count) == ("all_reduce", count)
    assert reduced.bytes == count * 8 * parameters


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("as_it_comes", [1, 11]),  # a first bucket of a mebibyte, the rest under the usual cap
        ("small", [1] * 12),
        ("middling", [4, 4, 4]),
        ("one_bucket", [12]),
    ],
)
def test_a_bucket_leaves_when_its_last_gradient_is_finished(
    run: Measure, name: str, layers: list[int]
) -> None:
    facts = shown(run("buckets", name), "buckets").facts
    assert facts["bytes"] == [n * LAYER_BYTES for n in layers]
    assert facts["num_gradients"] == [2 * n for n in layers]
    finished = [2 * sum(layers[: i + 1]) for i in range(len(layers))]
    assert facts["num_finished_before"] == finished


def test_buckets_leave_from_the_last_layer_to_the_first(run: Measure) -> None:
    first = shown(run("buckets", "small"), "buckets").facts["first_parameters"]
    assert first == [f"{2 * layer}.bias" for layer in reversed(range(12))]


def test_two_ranks_share_the_batch_that_one_device_takes_whole(run: Measure) -> None:
    one, two = run("speedup", "one_256"), run("speedup", "two_256")
    assert [r.num_samples for r in one.ranks] == [18 * 256]
    assert [r.num_samples for r in two.ranks] == [18 * 128] * 2
    assert [r.num_parameters for r in two.ranks] == [8 * (256 * 256 + 256)] * 2

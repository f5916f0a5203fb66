"""Slow ranks against sums by hand and against chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from runners.experiments.stragglers.oracle import shards
from runners.plans.experiment import find
from runners.traces.records import Run
from runners.training.teacher import Samples

Measure = Callable[[str, str], Run]


def test_ranks_that_agree_less_often_are_slow_in_the_same_steps() -> None:
    runs = find("stragglers").runs
    often, seldom = runs["sometimes"].settings.lengths(), runs["sometimes_local"].settings.lengths()
    assert often == seldom
    assert len({tuple(of_rank) for of_rank in often}) == 4


def test_what_a_training_should_take_is_the_sum_of_what_each_stretch_waits_for() -> None:
    runs = find("stragglers").runs
    for name, between in (("sometimes", 1), ("sometimes_local", 8)):
        total, own = 0.0, runs[name].settings.lengths()
        for start in range(0, 24, between):
            stretch = [0.0] * 4
            for rank in range(4):
                for step in range(start, start + between):
                    stretch[rank] += own[rank][step]
            total += max(stretch)
        assert runs[name].settings.expected_seconds == pytest.approx(total)


def test_chance_makes_a_step_slow_as_often_as_the_closed_form_says() -> None:
    plan = find("stragglers").runs["sometimes"]
    slow = total = 0
    for seed in range(400):
        own = replace(plan, seed=seed).settings.lengths()
        slow += sum(max(of_step) > 0.005 for of_step in zip(*own, strict=True))
        total += 24
    assert slow / total == pytest.approx(plan.settings.slow_step_share, abs=0.02)


def test_shards_follow_each_other_and_lose_no_row() -> None:
    rows = Samples(torch.arange(12.0), torch.arange(12))
    dealt = shards(rows, [3, 1, 2], 2)
    assert [s.labels.tolist() for s in dealt] == [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 11]]


@pytest.mark.ranks
@pytest.mark.parametrize("name", ["joined", "joined_remaining"])
def test_joined_ranks_learn_what_one_process_learns_from_all_their_batches(
    run: Measure, name: str
) -> None:
    joined = run("stragglers", name)
    assert (joined.status, joined.error) == ("completed", None)
    assert joined.ranks[0].measures["oracle_distance"] == pytest.approx(0.0, abs=1e-12)
    assert [r.num_samples for r in joined.ranks] == [250, 200, 150, 100]
    assert len({r.parameter_digest for r in joined.ranks}) == 1


@pytest.mark.parametrize(
    ("name", "changed", "word"),
    [
        ("one_slow", {"slow_rank": 4}, "slow_rank"),
        ("one_slow", {"pace_seconds": -1.0}, "pace"),
        ("sometimes_local", {"steps_between": 7}, "multiple"),
        ("joined", {"num_batches_per_rank": [1, 2]}, "ranks"),
        ("joined", {"divides_by": "none"}, "divides_by"),
    ],
)
def test_what_cannot_be_is_refused(name: str, changed: dict[str, object], word: str) -> None:
    plan = find("stragglers").runs[name]
    with pytest.raises(ValueError, match=word):
        replace(plan, settings=plan.settings.changed(changed))

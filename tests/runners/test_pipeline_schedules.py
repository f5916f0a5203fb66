"""Pipelines against oracles: an order of actions worked out by hand, the undivided model, sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from runners.experiments.pipeline_schedules import stages
from runners.plans.experiment import find
from runners.traces.records import Run

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
NAME = "pipeline_schedules"
NUM_RANKS, NUM_PARTS = 4, 8


def measured(run: Run, name: str) -> list[float]:
    """What every rank measured under a name."""
    return [float(str(rank.measures[name])) for rank in run.ranks]


@pytest.mark.parametrize(
    "name", ["real_gpipe", "real_1f1b", "real_interleaved", "real_zero_bubble"]
)
def test_every_schedule_computes_the_gradients_of_the_undivided_model(
    run: Measure, name: str
) -> None:
    pipeline = run(NAME, name)
    assert max(measured(pipeline, "gradient_distance")) < 1e-6
    last = pipeline.ranks[-1].measures
    assert last["loss"] == pytest.approx(last["undivided_loss"], rel=1e-6)


def test_the_scalar_loss_does_not_keep_a_tensor_as_large_as_its_input() -> None:
    import torch

    from runners.experiments.pipeline_schedules.stack import mean_loss

    rows = torch.zeros(64, 8)
    assert mean_loss(rows, rows).untyped_storage().nbytes() == 4


def test_what_a_rank_does_in_no_forward_and_no_backward_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock of the test's own: of eight seconds two in a forward, three in a backward."""
    now = 100.0

    def pass_seconds(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(perf_counter=lambda: now, sleep=pass_seconds)
    monkeypatch.setattr(stages, "time", clock)
    diary = stages.Diary()
    diary.begin_step(stages.Pace(forward_seconds=2.0))
    with diary.action(2.0):
        pass_seconds(0.5)  # what it computes; the rest of its pace is slept
    pass_seconds(0.25)  # too short for a wait: the machine sends
    with diary.action(1.0):
        pass_seconds(3.0)  # longer than its pace
    pass_seconds(2.75)
    assert diary.attempt(8.0) == stages.Attempt(3 / 8, 0.25 / 8, 0.25 / 2)


@pytest.mark.parametrize(
    ("run_name", "changed", "said"),
    [
        ("real_gpipe", {"num_microbatches": 7}, "not divisible into 7"),
        ("real_1f1b", {"num_microbatches": 2}, "no multiple of 4"),
        ("real_interleaved", {"num_layers": 4}, "not divisible by 8"),
        ("paced_gpipe", {"num_steps": 3}, "must be above"),
        ("paced_gpipe", {"slow_ratio": -1.0}, "not below zero"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused_in_a_line(
    run_name: str, changed: dict[str, int], said: str
) -> None:
    plan = find(NAME).runs[run_name]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))

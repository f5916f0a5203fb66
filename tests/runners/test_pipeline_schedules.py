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


def steps_of_1f1b(rank: int) -> list[str]:
    """The order of one rank: as many forwards as stages are left, then one of each in turn."""
    first = min(NUM_PARTS, NUM_RANKS - rank)
    turns = "".join("BF" for _ in range(NUM_PARTS - first))
    return [*("F" * first), *turns, *("B" * first)]


def most_in_flight(order: list[str]) -> int:
    """The most forwards that wait for their backward at once."""
    held = most = 0
    for action in order:
        held += 1 if action == "F" else -1
        most = max(most, held)
    assert held == 0
    return most


def test_1f1b_holds_what_its_order_says_and_gpipe_holds_all(run: Measure) -> None:
    orders = [steps_of_1f1b(rank) for rank in range(NUM_RANKS)]
    assert measured(run(NAME, "real_1f1b"), "num_in_flight") == [*map(most_in_flight, orders)]
    assert measured(run(NAME, "real_gpipe"), "num_in_flight") == [NUM_PARTS] * NUM_RANKS
    assert measured(run(NAME, "real_1f1b"), "num_actions") == [len(order) for order in orders]


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


def test_what_1f1b_keeps_is_what_is_in_flight_beside_torch_s_buffers(run: Measure) -> None:
    kept: dict[str, list[int]] = {}
    for name in ("real_gpipe", "real_1f1b"):
        ranks = run(NAME, name).ranks
        kept[name] = [
            rank.memory.largest.activations_bytes
            for rank in ranks
            if rank.memory is not None and rank.memory.largest is not None
        ]
    rows, width, layers = 2048 // NUM_PARTS, 32, 16 // NUM_RANKS
    microbatch = 4 * rows * width * 2 * layers  # of each layer the ReLU's result and the sum
    # Ranks 1 and 2 differ by one microbatch in flight, and in nothing else.
    assert kept["real_1f1b"][1] - kept["real_1f1b"][2] == microbatch
    assert kept["real_gpipe"][1] == kept["real_gpipe"][2]
    spared = (kept["real_gpipe"][1] - kept["real_1f1b"][1]) / microbatch
    assert spared == pytest.approx(NUM_PARTS - 3, abs=0.5)


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


def test_a_paced_step_lasts_as_long_as_one_microbatch_needs_on_all_ranks(run: Measure) -> None:
    """No share is compared with its formula here: that wants a quiet machine, and is a claim."""
    paced = run(NAME, "paced_one_batch")
    assert paced.nature == "paced"
    assert paced.timing.step is not None
    seconds = float(str(paced.settings["forward_seconds"])) * 3
    assert min(paced.timing.step.samples) >= 4 * seconds
    for share in measured(paced, "idle_share"):
        assert 0 < share < 1


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

"""A plan beside an accelerator: the simulated steps with real tensors, and what is said of both."""

from __future__ import annotations

import pytest
import torch

from runners.__main__ import main
from runners.planning.one_rank import simulate_rank
from runners.planning.outcomes import Outcome, lines, outcome
from runners.planning.question import Model, Question, Training, strategy_of
from runners.planning.table import GIB
from runners.simulate import allocator_check
from runners.simulate.allocation_replay import Allocate, Free, replay
from tests.runners.test_plan import LLAMA

QUESTION = Question(
    model=Model(name="tiny", architecture=LLAMA),
    training=Training(sequence=32, microbatch=2, global_batch=2, precision="fp32"),
    strategy=strategy_of("single", 1),
    limit_bytes=GIB,
)


def test_without_an_accelerator_there_are_no_outcomes(capsys, monkeypatch):
    monkeypatch.setenv("PROOFBOOK_DEVICE", "cpu")
    assert main(["plan", "gpt2-124m", "--outcomes"]) == 2
    assert "need an accelerator" in capsys.readouterr().err


def test_the_steps_of_an_outcome_hold_what_is_simulated():
    """With real tensors on this CPU; what an accelerator's allocator counts stays 0."""
    found = outcome(QUESTION, GIB, torch.device("cpu"))
    assert found.phase is None
    assert found.step_seconds is not None
    assert found.peak_bytes == pytest.approx(simulate_rank(QUESTION, 0).peak_bytes, rel=0.02)


def test_numbers_and_the_verdict_stand_beside_the_simulation():
    simulated = simulate_rank(QUESTION, 0)
    measured = Outcome(
        phase=None,
        peak_bytes=simulated.peak_bytes,
        allocated_bytes=round(simulated.allocated_bytes / 1.25),
        reserved_bytes=simulated.reserved_bytes,
        step_seconds=0.5,
    )
    peak, allocated, reserved, verdict, _ = lines(simulated, measured, GIB)
    assert peak.endswith("+0.00%")
    assert allocated.endswith("+25.00%")
    assert reserved.endswith("+0.00%")
    assert verdict == "within 1 GiB: simulated to complete, completed"


def test_a_configuration_that_ran_out_of_memory_has_a_verdict_alone():
    measured = Outcome(
        phase="backward", peak_bytes=1, allocated_bytes=1, reserved_bytes=1, step_seconds=None
    )
    small = QUESTION.model_copy(update={"limit_bytes": 1})
    (verdict,) = lines(simulate_rank(small, 0), measured, 1)
    assert verdict.endswith("simulated to run out of memory, ran out of memory in backward")


def test_the_check_of_the_allocator_frees_what_it_took():
    events = allocator_check.events()
    live = set()
    for event in events:
        if isinstance(event, Allocate):
            live.add(event.key)
        elif isinstance(event, Free):
            live.remove(event.key)
    assert len(live) <= allocator_check.MOST_LIVE
    replayed = replay(events)
    assert not replayed.is_refused
    assert replayed.peak_reserved_bytes > replayed.peak_allocated_bytes


@pytest.mark.gpu
def test_the_replay_reserves_what_this_machines_allocator_reserves():
    found = allocator_check.checked()
    if found is None:
        pytest.skip("no accelerator")
    assert found.agrees, found.line()

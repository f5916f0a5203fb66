"""Pipelines: what a rank's diary counts as idle, and schedules that cannot be."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from proofbook.runners.experiments import pipeline_schedules
from proofbook.runners.experiments.pipeline_schedules import RUNS, Diary


def test_the_scalar_loss_does_not_keep_a_tensor_as_large_as_its_input():
    samples = torch.zeros(64, 8)
    assert pipeline_schedules._mean_loss(samples, samples).untyped_storage().nbytes() == 4


def test_what_a_rank_does_in_no_forward_and_no_backward_is_idle(monkeypatch):
    """By a clock of the test's own: two seconds in a forward, three in a backward."""
    now = 100.0

    def pass_seconds(seconds):
        nonlocal now
        now += seconds

    clock = SimpleNamespace(perf_counter=lambda: now, sleep=pass_seconds)
    monkeypatch.setattr(pipeline_schedules, "time", clock)
    diary = Diary(forward_seconds=2.0, half_backward_seconds=0.0, _last=now)
    with diary.action(2.0):
        pass_seconds(0.5)  # what it computes; the rest of its pace is slept
    pass_seconds(0.25)  # too short for a wait: the machine sends
    with diary.action(1.0):
        pass_seconds(3.0)  # longer than its pace
    assert (diary.busy_seconds, diary.sending_seconds) == (5.0, 0.25)


def test_layers_that_stages_cannot_share_are_refused_in_a_line():
    declaration = RUNS["real_interleaved"]
    with pytest.raises(ValueError, match="num_layers 4 cannot be divided by num_stages 8"):
        replace(declaration, settings=declaration.settings.changed({"num_layers": 4}))

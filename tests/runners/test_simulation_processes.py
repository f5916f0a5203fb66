"""Simulations in processes of their own, which no accelerator may disturb."""

import os
import time

import pytest

from proofbook.runners.simulate.processes import results
from tests.processes import python


def test_results_are_in_the_order_of_the_jobs():
    assert results(_slept, [0.3, 0.0, 0.1], max, 3, "slept") == [0.3, 0.0, 0.1]


def _slept(seconds):
    time.sleep(seconds)
    return seconds


def test_a_simulation_sees_no_accelerator_and_the_command_still_does(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert results(os.getenv, ["CUDA_VISIBLE_DEVICES"], max, 1, "looked") == [""]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


# A torch that has a device forbids backward passes in processes forked after one. Builds for CUDA
# have a device under fake tensors, with or without a GPU; a backend in Python gives one to any.
WITH_A_DEVICE = """
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretended")
"""
SIMULATED = """
import json
from proofbook.runners.planner.simulated.cache import answers
from proofbook.runners.planner.answers.question import PlannedModel, Question, TrainingSettings
from proofbook.runners.planner.answers.question import strategy_of
from proofbook.runners.planner.answers.architecture import model_presets
from tests.runners.wrapped import ddp, simulated

found = simulated(ddp, 2)
training = TrainingSettings(sequence=64, microbatch=1, global_batch=2)
model = PlannedModel(name="small", architecture=model_presets()["gpt2-124m"].architecture)
asked = Question(model=model, training=training, strategy=strategy_of("fsdp", 2))
print(json.dumps([one if isinstance(one, str) else None for one in found]))
print(json.dumps([one.reason for one in answers([asked])]))
"""


@pytest.mark.ranks
def test_programs_and_plans_are_simulated_by_a_torch_that_has_a_device():
    done = python("-W", "ignore", "-c", WITH_A_DEVICE + SIMULATED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[null, null]", "[null]"]

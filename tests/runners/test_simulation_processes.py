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
from proofbook.runners.planner.simulated.cache import answers
from tests.runners.questions import asked
from tests.runners.wrapped import ddp, simulated

(log,), (answer,) = simulated(ddp, 1), answers([asked("fsdp", 2)])
print(isinstance(log, str), answer.reason)
"""


@pytest.mark.ranks
def test_programs_and_plans_are_simulated_by_a_torch_that_has_a_device():
    done = python("-W", "ignore", "-c", WITH_A_DEVICE + SIMULATED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False None"]

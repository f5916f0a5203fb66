"""A torch that has a device forbids backward passes in processes forked after one.

The builds of torch for CUDA have a device under fake tensors, with or without a GPU. A backend in
Python gives every build one, so that torch's own check is at work in these tests.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.ranks
WITH_A_DEVICE = """
import sys
from pathlib import Path
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretended")
folder = Path(sys.argv[1])
"""
FORKED_AFTER_BACKWARD = """
import os, torch

value = torch.ones(2, requires_grad=True)
value.sum().backward()
if os.fork() == 0:
    try:
        value.sum().backward()
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
SIMULATED = """
import json
from runners.simulate.suite import simulate
from runners.simulate.wanted import wanted

found = simulate(wanted(["ddp.ddp", "growth.stages_ranks_2"]), folder).runs
print(json.dumps({f"{one.experiment}.{one.run}": one.reason for one in found}))
"""
PLANNED = """
import json
from runners.planning.processes import answers
from runners.planning.question import Model, Question, Training, strategy_of
from runners.plans.model_presets import model_presets

model = Model(name="small", architecture=model_presets()["gpt2-124m"].architecture)
asked = [
    Question(
        model=model,
        training=Training(sequence=64, microbatch=1, global_batch=2),
        strategy=strategy_of(name, 2),
        backend="nccl",
    )
    for name in ("ddp", "fsdp")
]
found = answers(asked, 2, folder)
print(json.dumps({one.question.strategy.name: one.reason for one in found}))
"""


def _printed(program: str, folder: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITH_A_DEVICE + program, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_refuses_what_these_tests_are_about(tmp_path):
    said = _printed(FORKED_AFTER_BACKWARD, tmp_path)
    assert "autograd's threading in combination with fork-based multiprocessing" in said


def test_runs_are_simulated_by_a_torch_that_has_a_device(tmp_path):
    assert json.loads(_printed(SIMULATED, tmp_path)) == {
        "ddp.ddp": None,
        "growth.stages_ranks_2": None,
    }


def test_plans_are_simulated_by_a_torch_that_has_a_device(tmp_path):
    assert json.loads(_printed(PLANNED, tmp_path)) == {"ddp": None, "fsdp": None}

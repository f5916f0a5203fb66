"""A torch that has a device forbids backward passes in processes forked after one.

The builds of torch for CUDA have a device under fake tensors, with or without a GPU. A backend in
Python gives every build one, so that torch's own check is at work in these tests.
"""

import pytest

from tests.processes import python

pytestmark = pytest.mark.ranks
WITH_A_DEVICE = """
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretended")
"""
SIMULATED = """
import json
from runners.planner.simulated.cache import answers
from runners.planner.answers.question import Model, Question, Training, strategy_of
from runners.planner.answers.architecture import model_presets
from tests.runners.wrapped import ddp, simulated

found = simulated(ddp, 2)
training = Training(sequence=64, microbatch=1, global_batch=2)
model = Model(name="small", architecture=model_presets()["gpt2-124m"].architecture)
asked = Question(model=model, training=training, strategy=strategy_of("fsdp", 2))
print(json.dumps([one if isinstance(one, str) else None for one in found]))
print(json.dumps([one.reason for one in answers([asked])]))
"""


def test_programs_and_plans_are_simulated_by_a_torch_that_has_a_device():
    done = python("-W", "ignore", "-c", WITH_A_DEVICE + SIMULATED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[null, null]", "[null]"]

"""Programs of planned layouts, simulated beside the simulation of their plans."""

from functools import partial
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.distributed import pipelining as pp

from proofbook.runners.planner.answers.architecture import model_presets
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.question import strategy_of
from proofbook.runners.planner.program import program_of
from proofbook.runners.planner.simulated.one_rank import simulate_rank
from proofbook.runners.simulate.caching_allocator import replay
from proofbook.runners.simulate.fake_mode import ValuelessMode
from proofbook.runners.simulate.meter import Meter
from proofbook.runners.simulate.stand_ins import simulating_rank
from tests.runners.program_ranks import LAYOUTS, loaded
from tests.runners.questions import asked, changed


def stage(plan, module, index, total, device, group):
    """A stage that is told what it receives: other ranks, which are not there, cannot tell it."""
    dtype = torch.bfloat16 if plan.precision == "bf16-mixed" else torch.float32
    empty = partial(torch.empty, plan.microbatch, dtype=dtype, requires_grad=True)
    ids = torch.zeros(plan.microbatch, plan.sequence, dtype=torch.long)
    hidden = empty(plan.sequence // plan.tensor, plan.hidden_size)
    given = (ids, None) if index == 0 else (hidden, hidden.detach())
    logits = empty(plan.sequence, plan.vocabulary // plan.tensor)
    made = (logits, None) if index == total - 1 else (hidden, hidden.detach())
    one = pp.stage.PipelineStage(module, index, total, device, given[0], *made, given[1], group)
    one._inference_mode = pp.stage.InferenceMode.STATIC
    return one


def simulated(program, rank):
    """Bytes that the allocator gives out at the peak of two steps, and that it reserves."""
    plan, meshes = program.PLAN, []
    with (
        simulating_rank(rank, plan.pipeline * plan.data * plan.tensor, meshes),
        patch.object(pp, "PipelineStage", partial(stage, plan)),
        patch.object(pp.schedules._PipelineSchedule, "_warmup_p2p", lambda *_: None),
        ValuelessMode(),
        Meter(meshes) as meter,
    ):
        dist.init_process_group()
        program.train(plan, torch.device("cpu"), 2, None)
        return replay(meter.events())


@pytest.mark.parametrize("one", [one for one in LAYOUTS if one[3] != "mixtral-8x7b"])
def test_a_program_needs_what_its_plan_says(one, tmp_path):
    """What it reserves depends on the order of its allocations, too; a plan repeats keys."""
    (_, layout, devices, preset, changes), path = one, tmp_path / "one.py"
    shape, strategy = model_presets()[preset].architecture, strategy_of(layout, devices)
    small = {"num_layers": max(2, strategy.num_stages), "norm": "layernorm"}
    shape = changed(shape, **small, num_kv_heads=shape.num_heads, vocabulary=32_768)
    how = {"sequence": 4096, "precision": "fp32", "has_zero1_of_fsdp": True}
    how["global_batch"] = 2 * strategy.num_stages * strategy.data
    planned = asked(layout, devices, shape, **{**how, **changes})
    path.write_text(program_of(planned, Cluster(1, devices, 1e15, 1e11, 1e11), path, "No plan."))
    for rank in planned.ranks:
        plan, needed = simulate_rank(planned, rank), simulated(loaded(path), rank)
        assert needed.allocated_bytes == pytest.approx(plan.allocated_bytes, rel=0.02)
        assert needed.reserved_bytes <= 1.08 * plan.reserved_bytes

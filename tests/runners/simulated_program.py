"""A written program's own training, simulated as plans are: what it needs on one of its ranks."""

from contextlib import ExitStack
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed.pipelining as pp
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torch.distributed.pipelining.stage import InferenceMode
from torch.distributed.tensor import DTensor

from runners.meters.memory import CPU
from runners.planner.simulated.fused_kernels import rms_norm
from runners.planner.simulated.own_model import own_code_at_work
from runners.simulate.caching_allocator import replay
from runners.simulate.fake_mode import ValuelessMode
from runners.simulate.meter import Meter
from runners.simulate.stand_ins import stand_ins


def _norm(x, _, weight, eps):
    """One kernel, as on an accelerator."""
    if not isinstance(x, DTensor):
        return rms_norm(x, weight, eps)
    normed = rms_norm(x.to_local(), weight.to_local(), eps)
    return DTensor.from_local(normed, x.device_mesh, x.placements)


def _stage_of(plan):
    """A stage that is told what it receives, since ranks that are simulated tell it nothing."""

    def stage(module, index, total, device, group):
        dtype = torch.bfloat16 if plan.precision.startswith("bf16") else torch.float32
        ids = torch.zeros(plan.microbatch, plan.sequence, dtype=torch.long)
        part = torch.zeros(plan.microbatch, plan.sequence // plan.tensor, plan.hidden_size)
        hidden = part.to(dtype).requires_grad_()
        first, last = index == 0, index == total - 1
        logits = ids[..., None].expand(-1, -1, plan.vocabulary // plan.tensor).to(dtype)
        return pp.PipelineStage(
            module, index, total, device, ids if first else hidden,
            logits.requires_grad_() if last else hidden, None if last else hidden.detach(),
            None if first else hidden.detach(), group,
        )  # fmt: skip

    return stage


def _agree(_, stages, *__):
    for one in stages:
        one._inference_mode = InferenceMode.STATIC


def simulated(program, rank):
    """Bytes that the allocator gives out at the peak of two steps, and that it reserves."""
    plan, meshes = program.PLAN, []
    with ExitStack() as stack:
        stack.enter_context(stand_ins(rank, plan.pipeline * plan.data * plan.tensor, meshes))
        dist.init_process_group()
        stack.enter_context(patch.object(torch.nn.functional, "rms_norm", _norm))
        mode = stack.enter_context(ValuelessMode())
        mode.allow_fallback_kernels = False
        stack.enter_context(own_code_at_work())
        meter = stack.enter_context(Meter(meshes, is_gloo=False))
        stage = SimpleNamespace(**{**vars(pp), "PipelineStage": _stage_of(plan)})
        stack.enter_context(patch.object(program, "pp", stage))
        stack.enter_context(patch.object(_PipelineSchedule, "_warmup_p2p", _agree))
        program.train(plan, CPU, 2, None)
        return replay(meter.events())

"""Simulate one rank of a plan, in this process.

In: a `Question` and the rank. Out: a `GridRank`. Two steps are taken, of which the second counts:
the first creates the optimizer's state, which the peak of the second then includes. Without a
pipeline, it has a single microbatch.
"""

from contextlib import nullcontext

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import loss_parallel

from proofbook.companions.planner.answers.plan_grid import GridRank
from proofbook.companions.planner.answers.question import Question, Strategy
from proofbook.companions.planner.simulated.built import CONTEXT, EXPERT, build, expert_data
from proofbook.companions.planner.simulated.layers import LocalExperts
from proofbook.companions.planner.simulated.own_model import RefusingMode, patched_for_own_code
from proofbook.companions.planner.simulated.step import EMBEDDING, Step, repeats
from proofbook.companions.planner.simulated.updates import RankOptimizer
from proofbook.runners.closed_forms.steps import ring_bytes, share_bytes
from proofbook.runners.core.meters.memory import MemoryMeter, local
from proofbook.runners.simulate.caching_allocator import replay
from proofbook.runners.simulate.log import AxisCalls
from proofbook.runners.simulate.meter import Meter
from proofbook.runners.simulate.stand_ins import simulating_rank

AXES = ("pipeline", "data", "tensor")


def simulate_rank(question: Question, rank: int) -> GridRank:
    """Execute two steps as one rank without data; the `GridRank` that the second's meter gives."""
    meshes: list[DeviceMesh] = []
    strategy = question.strategy
    sizes = (strategy.pipeline, strategy.num_summing, strategy.tensor)
    with simulating_rank(rank, strategy.num_devices, meshes):
        mesh = None
        if strategy.num_devices > 1:
            dist.init_process_group()
            mesh = init_device_mesh("cpu", sizes, mesh_dim_names=AXES)
        with RefusingMode() as mode, patched_for_own_code():
            meter = Meter(
                meshes,
                activation_axes=("tensor", "pipeline", EMBEDDING, CONTEXT, EXPERT),
                copies_on_reduce_stream=question.implementation.copies_on_reduce_stream,
                times_of=repeats(question).of_phase,
            )
            with meter:
                step = take_steps(question, mesh, rank, meter)
                held = sum(meter._sizes.values())
            mode.check()
            return _answer(question, rank, step.module, meter, held)


def take_steps(question: Question, mesh: DeviceMesh | None, rank: int, meter: MemoryMeter) -> Step:
    """The `Step` of this rank's part of the model, built here, after two steps, the second counted.

    The mesh has the axes `AXES`; the meter is told of phases, and of the classes of tensors.
    """
    strategy = question.strategy
    stages = strategy.stages_of(rank // (strategy.num_summing * strategy.tensor))
    chunks = [build(question, mesh, stage) for stage in stages]
    module = nn.ModuleList(chunk.module for chunk in chunks)
    meter.name(module.buffers(), "buffers")
    meter.name(map(local, module.parameters()), "parameters")
    shards = None
    if mesh is not None and strategy.sharding == "zero1":
        shards = _shards(module, strategy, mesh["data"])
    update = RankOptimizer(module.parameters(), question.training, shards, question.implementation)
    meter.name(update.state(), "optimizer")
    meter.name(update.wide.values(), "gradients")
    step = Step(question, chunks, update, mesh, meter)
    num_microbatches = repeats(question).simulated
    is_divided = question.model.architecture is not None and strategy.tensor > 1
    with loss_parallel() if is_divided else nullcontext():
        # What a pipeline frees in its first step decides where the optimizer's state lies.
        step.run(num_microbatches if strategy.pipeline > 1 else 1)
        meter.counting = True
        step.run(num_microbatches)
        meter.counting = False
    return step


def _shards(
    module: nn.Module, strategy: Strategy, data: DeviceMesh
) -> dict[nn.Parameter, dist.ProcessGroup]:
    """The ranks among which ZeRO-1 shards the state of each parameter."""
    groups = dict.fromkeys(module.parameters(), data.get_group())
    if strategy.expert > 1:
        group = expert_data(data, strategy).get_group()
        for experts in (part for part in module.modules() if isinstance(part, LocalExperts)):
            groups |= dict.fromkeys(experts.parameters(), group)
    return {parameter: group for parameter, group in groups.items() if group.size() > 1}


def _answer(question: Question, rank: int, module: nn.Module, meter: Meter, held: int) -> GridRank:
    memory = meter.memory(None)
    assert memory.peak_bytes is not None
    assert memory.at_peak is not None
    peaks = replay(meter.events(), is_expandable=question.implementation.has_expandable_segments)
    calls = meter.calls()
    return GridRank(
        rank=rank,
        peak_bytes=memory.peak_bytes,
        peak_phase=memory.peak_phase,
        at_peak=memory.at_peak,
        between_steps_bytes=held,
        allocated_bytes=peaks.allocated_bytes,
        reserved_bytes=peaks.reserved_bytes,
        num_parameters=sum(local(p).numel() for p in module.parameters()),
        flops=round(meter.flops),
        sent_bytes=round(sum(map(_sent_bytes, calls))),
        calls=calls,
    )


def _sent_bytes(call: AxisCalls) -> float:
    """Bytes that a rank sends at least, by the ring algorithms' closed forms."""
    if call.operation == "all_reduce":
        return float(ring_bytes(call.bytes, call.num_ranks))
    if call.operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return float(share_bytes(call.bytes, call.num_ranks))
    return float(call.bytes) if call.operation == "send" else 0.0

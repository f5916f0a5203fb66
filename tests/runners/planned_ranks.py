"""Planned layouts on real ranks over gloo, by loops of torch alone or by the planned step itself.

The loops share no code with `companions/planner`. The code of the planned step runs here, too, but
with values, gloo, torch's own reducer, and every microbatch, or by a schedule of torch's.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.distributed.pipelining as pp
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from proofbook.companions.planner.simulated import one_rank
from proofbook.companions.planner.simulated.axes import RingAttention
from proofbook.companions.planner.simulated.step import Repeats, Step
from proofbook.runners.core.meters.memory import CPU

WIDTH, DEPTH = 64, 2
MICROBATCH, NUM_MICROBATCHES, NUM_STEPS = 64, 2, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.widen(self.norm(x))))


class Residuals(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def batch(microbatch, _):
    return torch.zeros(microbatch, WIDTH)


def tensor_plan():
    """`--tensor-plan`: columns, then rows, of each MLP."""
    return {"blocks.*.widen": ColwiseParallel(), "blocks.*.narrow": RowwiseParallel()}


def is_memory(tensor):
    """Whether a tensor holds memory: a wrapper of a result under way holds none itself."""
    return not isinstance(tensor, AsyncCollectiveTensor)


def _adam(parameters):
    return torch.optim.AdamW(parameters, 1e-3, fused=True)


def _train(module, optimizers, accumulates=nullcontext, reduce=None, gather=None):
    """Steps of several microbatches; `accumulates` is around all but the last of them."""
    for _ in range(NUM_STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for context in (*[accumulates] * (NUM_MICROBATCHES - 1), nullcontext):
            with context():
                module(batch(MICROBATCH, 0)).mean().backward()
        if reduce is not None:
            reduce()
        for optimizer in optimizers:
            optimizer.step()
        if gather is not None:
            gather()


def ddp():
    module = DistributedDataParallel(Residuals())
    _train(module, [_adam(module.parameters())], module.no_sync)


def fsdp():
    module = Residuals()
    for block in module.blocks:
        fully_shard(block, reshard_after_forward=block is not module.blocks[-1])
    fully_shard(module)
    _train(module, [_adam(module.parameters())])


def zero1():
    """State is divided among ranks, which divide each parameter evenly; all is in place."""
    module = Residuals()
    ranks, own = dist.get_world_size(), dist.get_rank()
    shares = {p: nn.Parameter(p.detach().view(-1).chunk(ranks)[own]) for p in module.parameters()}

    def reduce():
        for parameter, share in shares.items():
            whole = parameter.grad.view(-1)
            dist.reduce_scatter_single(whole.chunk(ranks)[own], whole)
            share.grad = whole.chunk(ranks)[own]

    def gather():
        for parameter, share in shares.items():
            dist.all_gather_single(parameter.detach().view(-1), share.detach())
        module.zero_grad()

    _train(module, [_adam(shares.values())], reduce=reduce, gather=gather)


def tp():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    module = parallelize_module(Residuals(), mesh, tensor_plan())
    divided = [p for p in module.parameters() if hasattr(p, "device_mesh")]
    whole = [p for p in module.parameters() if not hasattr(p, "device_mesh")]
    _train(module, [_adam(divided), _adam(whole)])


LOOPS = {loop.__name__: loop for loop in (ddp, zero1, fsdp, tp)}


def trained(rank, strategy):
    rank.meter._is_tracked, rank.meter._look_around = is_memory, lambda: None
    LOOPS[strategy]()


# --- the planned step


class Sends:
    """Sends that go on while the rank does, each from a copy that no meter sees.

    A send over gloo ends once it is received, so neighbours that send to each other first would
    both wait for ever. A stream of a device takes a send over from the program.
    """

    def __init__(self):
        self._send, self._under_way = dist.isend, []

    def send(self, tensor, **named):
        with torch._C._DisableTorchDispatch():
            copy = tensor.clone()
        self._under_way.append(self._send(copy, **named))

    def wait(self):
        for one in self._under_way:
            one.wait()


class ScheduledStep(Step):
    """The same step, by a schedule and stages of torch's."""

    def run(self, _):
        training, strategy, chunks = self._question.training, self._question.strategy, self._chunks
        count = self._question.num_microbatches
        if not hasattr(self, "schedule"):
            stages = [
                pp.PipelineStage(one.wrapped, index, strategy.num_stages, CPU, group=self._stages)
                for one, index in zip(chunks, strategy.stages_of(self._rank), strict=True)
            ]
            name = strategy.schedule.replace("interleaved", "interleaved1f1b")
            kind, given = pp.schedules.get_schedule_class(name), stages[1:] and stages
            self.schedule = kind(given or stages[0], count, lambda out, _: chunks[-1].loss(out))
        tokens = torch.zeros(count * training.microbatch, training.sequence, dtype=torch.long)
        target = tokens if chunks[-1].is_last else None
        self.schedule.step(*[tokens] * chunks[0].is_first, target=target, return_outputs=False)
        self._update.step()
        self._update.zero_grad()


def needed(rank, question, step=Step):
    """The bytes that a rank gives each collective in the second of two steps."""
    rank.meter._is_tracked = is_memory
    rank.meter._look_around = lambda: None  # a simulation counts what operations show
    strategy, sends = question.strategy, Sends()
    one_rank.Step = step
    one_rank.repeats = lambda one: Repeats(one.num_microbatches, one.num_microbatches)
    dist.send = sends.send
    sizes = (strategy.pipeline, strategy.num_summing, strategy.tensor)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=one_rank.AXES)
    one_rank.take_steps(question, mesh, rank.rank, rank.meter)
    sends.wait()
    return {one.operation: one.bytes for one in rank.meter.collective_list()}


def attention_of_context_ranks(rank):
    """How far the planned attention is from that of one process: outputs, and three gradients."""
    size = dist.get_world_size()
    torch.manual_seed(0)
    whole = [torch.randn(1, heads, 16 * size, 8, requires_grad=True) for heads in (4, 2, 2)]
    arriving = torch.randn(1, 4, 16 * size, 8)

    def own(tensor):
        blocks = tensor.detach().chunk(2 * size, 2)
        return torch.cat([blocks[rank.rank], blocks[-1 - rank.rank]], 2)

    true = F.scaled_dot_product_attention(*whole, is_causal=True, enable_gqa=True)
    true.backward(arriving)
    parts = [own(tensor).requires_grad_() for tensor in whole]
    output = RingAttention.apply(*parts, dist.group.WORLD)
    output.backward(own(arriving))
    pairs = [
        (output, true),
        *((part.grad, one.grad) for part, one in zip(parts, whole, strict=True)),
    ]
    return [(ours.detach() - own(of_all)).abs().max().item() for ours, of_all in pairs]

"""Faults of programs that divide the model among ranks; `right`: corrected.

torchrun --nproc-per-node 2 divided.py NAME [right]
"""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

NAME, RIGHT = sys.argv[1], "right" in sys.argv
CLASSES, HEAD, CALLS, MICROBATCHES, VOCABULARY, WIDTH = 12, 8, 2, 2, 20, 16
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
torch.manual_seed(0)


def drawn(step):
    return torch.Generator().manual_seed(step)


class RowwiseLinear(nn.Linear):
    def shard(self):
        self.weight = nn.Parameter(distribute_tensor(self.weight.data, mesh, [Shard(1)]))
        self.bias = nn.Parameter(distribute_tensor(self.bias.data, mesh, [Replicate()]))

    def forward(self, x):
        weight, bias = self.weight.to_local(), self.bias.to_local()
        out = F.linear(x, weight, bias / mesh.size())
        return DTensor.from_local(out, mesh, [Partial()]).full_tensor()


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), RowwiseLinear(32, 4)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


def bias_over_ranks():
    """Each rank adds `bias / mesh.size()`; autograd divides the bias's gradient as well."""
    model = MLP()
    parallelize_module(model, mesh, {"up": ColwiseParallel()})
    model.down.shard()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        g = drawn(step)
        inputs, targets = torch.randn(16, 8, generator=g), torch.randn(16, 4, generator=g)
        loss = F.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


def distillation_in_loss_parallel():
    """Inside `loss_parallel` the backward of `log_softmax` is the identity: right for one term."""
    output, uses_local = (Replicate(), True) if RIGHT else (Shard(-1), False)
    plan = {
        "0": ColwiseParallel(),
        "2": RowwiseParallel(),
        "3": ColwiseParallel(output_layouts=output, use_local_output=uses_local),
    }
    layers = nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, CLASSES)
    model = parallelize_module(nn.Sequential(*layers), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        g = drawn(step)
        teacher = torch.randn(16, CLASSES, generator=g).softmax(-1)
        inputs = torch.randn(16, 8, generator=g)
        labels = torch.randint(CLASSES, (16,), generator=g)
        if not RIGHT:
            teacher = distribute_tensor(teacher, mesh, [Shard(-1)])
            labels = DTensor.from_local(labels, mesh, [Replicate()])
        optimizer.zero_grad()
        with contextlib.nullcontext() if RIGHT else loss_parallel():
            logits = model(inputs)
            log_probabilities = F.log_softmax(logits, dim=-1)
            soft = -(teacher * log_probabilities).sum() / len(inputs)
            if not RIGHT:
                soft = soft.redistribute(placements=[Replicate()])
            loss = F.cross_entropy(logits, labels) + soft
            loss.backward()
        optimizer.step()
        yield loss if RIGHT else loss.to_local()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.query = nn.Linear(16, 4 * HEAD, bias=False)
        self.value = nn.Linear(16, 4 * HEAD, bias=False)
        self.shared_key = nn.Linear(16, HEAD, bias=False)
        self.out = nn.Linear(4 * HEAD, 6, bias=False)

    def forward(self, x):
        x = self.embed(x)
        heads = (self.query(x), self.value(x))
        query, value = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in heads)
        shared = self.shared_key(x)
        if RIGHT:
            shared = DTensor.from_local(shared, mesh, [Replicate()])
            shared = shared.to_local(grad_placements=[Partial()])
        mixed = F.scaled_dot_product_attention(query, shared.unsqueeze(1).expand_as(query), value)
        return self.out(mixed.transpose(1, 2).flatten(2))


def shared_key():
    """`self.shared_key(x)` is replicated, and nothing adds the gradients from others' heads."""
    model = Attention()
    plan = {"query": ColwiseParallel(), "value": ColwiseParallel(), "out": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    for step in range(4):
        inputs = 3 * torch.randn(4, 8, 6, generator=drawn(step))
        loss = F.mse_loss(model(inputs), inputs.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


def scheduled(model, batch, loss_fn, calls=1, **how):
    """Losses of two stages under GPipe: each step is an update of several calls."""
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=loss_fn, **how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        inputs, labels = batch(step)
        losses = []
        for part, target in zip(inputs.chunk(calls), labels.chunk(calls), strict=True):
            if rank == 0:
                schedule.step(part)
            else:
                schedule.step(target=target, losses=losses)
        optimizer.step()
        yield torch.stack(losses or [torch.zeros(())]).mean()


def pipeline_accumulation():
    """`scale_grads=True` divides the accumulated gradient on every call: the first twice."""
    stages = [
        nn.Sequential(nn.Linear(8, 32), nn.GELU()),
        nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 5)),
    ]
    parts = CALLS * MICROBATCHES if RIGHT else CALLS

    def batch(step):
        g = drawn(step)
        return torch.randn(16, 8, generator=g), torch.randint(5, (16,), generator=g)

    def loss_fn(outputs, labels):
        return F.cross_entropy(outputs, labels) / parts

    how = {"scale_grads": False} if RIGHT else {}
    yield from scheduled(stages[rank], batch, loss_fn, CALLS, **how)


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH) / 4)
        torch.manual_seed(1 + rank)
        self.block = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x):
        hidden = F.embedding(x, self.weight) if rank == 0 else x
        hidden = hidden + self.block(hidden)
        return hidden if rank == 0 else F.linear(hidden, self.weight)


def tied_across_stages():
    """Nothing adds the gradients of the two uses of a tied weight before the optimizer steps."""

    def batch(step):
        tokens = torch.randint(VOCABULARY, (8, 9), generator=drawn(step))
        return tokens[:, :-1], tokens[:, 1:]

    def loss_fn(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    yield from scheduled(Stage(), batch, loss_fn)


for step, loss in enumerate(globals()[NAME]()):
    if rank == world - 1:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()

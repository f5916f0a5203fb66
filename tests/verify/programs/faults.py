"""One fault each, for the causes that no other program here has; the first argument names it."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WIDTH, PARTS = 16, 4
WAY = sys.argv[1]
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Net(nn.Module):
    """A block with a norm, experts that each rank holds, and a head."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.experts, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        hidden = self.up(self.norm(x))
        if WAY == "layout":  # halves of each rank's part are others
            gate, hidden = hidden.chunk(2, -1)
            hidden = torch.cat([gate * hidden] * 2, -1)
        x = x + self.experts(self.down(hidden.relu()))
        return self.head(functional.dropout(x, 0.1) if WAY == "masks" else x)


def batches(drawn_by=None):
    """Inputs and labels of an update's microbatches, five times."""
    drawn = torch.Generator().manual_seed(rank if drawn_by is None else drawn_by)
    for _ in range(5):
        x = torch.randn(PARTS, 6, WIDTH, generator=drawn)
        y = torch.randint(WIDTH, x.shape[:2], generator=drawn)
        y[0, 2 if WAY == "means" else 6 :] = -100
        yield x, y


def reduce(parameters, factor=1 / ranks):
    """Average gradients over the ranks."""
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad *= factor


def microbatches():
    """Accumulation by hand: the losses or the gradients are spoiled."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    divisor = {"parts_twice": PARTS**2, "both": 1, "some_parts": 1}.get(WAY, PARTS)
    old = None
    for x, y in batches():
        optimizer.zero_grad()
        for part in range(PARTS):
            value = functional.cross_entropy(model(x[part]), y[part])
            (value / (1 if WAY == "last" and part == PARTS - 1 else divisor)).backward()
            if WAY == "reduced_each":  # and again with those after it
                reduce(model.parameters(), 1)
        SPOILED.get(WAY, lambda _: None)(model)
        if WAY != "sent":
            reduce(model.parameters(), 1 if WAY == "both" else 1 / ranks)
        scale_some(model)
        if WAY == "late":
            now = [own.grad.clone() for own in model.parameters()]
            for own, before in zip(model.parameters(), old or now, strict=True):
                own.grad.copy_(before)
            old = now
        optimizer.step()


def scale_some(model):
    """After the reduction: some gradients get another factor, or all on each rank its own."""
    kind, _, how = WAY.rpartition("_")
    some = {"expert": model.experts, "norm": model.norm}.get(kind, model.head)
    for own in some.parameters():
        own.grad *= {"times": ranks, "divided": 1 / ranks, "other": 0.3}.get(how, 1)
    for own in {*model.parameters()} - {*some.parameters()} if WAY == "some_parts" else ():
        own.grad /= PARTS
    if WAY == "own_norm":  # each rank adds up other parts of the norm
        square = sum(own.grad.square().sum() for own in list(model.parameters())[rank::ranks])
        for own in model.parameters():
            own.grad *= 0.01 / square.sqrt()


def send(model):
    """The first rank's gradients, in the place of the mean."""
    for own in model.parameters():
        dist.broadcast(own.grad, 0)


def keep_largest(model):
    """Each rank sends its largest elements alone."""
    for own in model.parameters():
        own.grad *= own.grad.abs() > own.grad.abs().mean()


SPOILED = {"sent": send, "top": keep_largest}


class Orthogonal(torch.optim.Optimizer):
    """Steps by the nearest orthogonal matrix of each rank's rows, and not of the whole."""

    @torch.no_grad()
    def step(self):
        for own in self.param_groups[0]["params"]:
            if own.dim() == 2:
                left, _, right = torch.linalg.svd(own.grad.to_local(), full_matrices=False)
                own.to_local().sub_(0.01 * left @ right)


def sharded():
    """FSDP: sums over the ranks of shards, or over none of the replicas."""
    model = Net()
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicas", "shards"))
    fully_shard(model, **{"mesh": mesh["shards"]} if WAY == "shards_alone" else {})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if WAY == "whole_matrices":
        optimizer = Orthogonal(model.parameters(), {})
    for x, y in batches():
        optimizer.zero_grad()
        functional.cross_entropy(model(x.flatten(0, 1)), y.flatten()).backward()
        if WAY == "shards_summed":
            for own in model.parameters():
                dist.all_reduce(own.grad.to_local())
        optimizer.step()


def wrapped():
    """DDP: a scale that stays, clipping of each microbatch, parameters that DDP waits for."""
    net = Net()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for x, y in batches():
        optimizer.zero_grad()
        if WAY == "clips":
            for part in range(PARTS):
                (functional.cross_entropy(model(x[part]), y[part]) / PARTS).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            continue
        rows = x.flatten(0, 1)
        if WAY == "unused":
            net.forward = net.up.forward
        if WAY == "twice":
            net.forward = lambda rows: checkpoint(
                net.head, checkpoint(net.head, rows.requires_grad_(), use_reentrant=True),
                use_reentrant=True,
            )  # fmt: skip
        value = functional.cross_entropy(model(rows), y.flatten())
        (scaler.scale(value) if WAY == "scaled" else value).backward()
        optimizer.step()
        if WAY == "emptied":
            optimizer.state.clear()


def divided():
    """Tensor parallelism: masks of their own after the sum, or a layout that is another."""
    model = Net()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for x, y in batches(0):
        optimizer.zero_grad()
        functional.cross_entropy(model(x.flatten(0, 1)), y.flatten()).backward()
        optimizer.step()


def stages():
    """A pipeline: embedding and head begin equal, and are trained apart."""
    matrix = torch.randn(WIDTH, WIDTH)
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    with torch.no_grad():
        module[-rank].weight.copy_(matrix)
    stage = PipelineStage(module, rank, ranks, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, PARTS, functional.cross_entropy)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for x, y in batches(0):
        optimizer.zero_grad()
        last = {"target": y.flatten()} if rank + 1 == ranks else {}
        schedule.step(*[x.flatten(0, 1)] * (rank == 0), **last)
        optimizer.step()


KINDS = {
    sharded: "shards_summed shards_alone whole_matrices",
    wrapped: "emptied scaled clips unused twice",
    divided: "masks layout", stages: "tied",
}  # fmt: skip
next((do for do, ways in KINDS.items() if WAY in ways.split()), microbatches)()
dist.destroy_process_group()

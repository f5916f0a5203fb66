"""A small vision transformer, which no experiment has, and the loops that train it on ranks.

The loops are written here with torch alone; nothing of `runners/planner` runs in them. As timm's,
it has a convolution that embeds patches, a class token, and blocks.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, DEPTH, PATCH, SIDE, CLASSES = 64, 8, 2, 4, 16, 16
MICROBATCH, NUM_MICROBATCHES, NUM_STEPS = 8, 2, 2


class Block(nn.Module):
    """Attention and an MLP behind norms."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in "qkvo")
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        given = self.norm1(x)
        heads = (
            one(given).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        x = x + self.output(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Images (batch, 3, side, side) → logits of the class token (batch, classes)."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, (SIDE // PATCH) ** 2 + 1, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x)[:, 0])


def batch(microbatch, _):
    """`--batch`: images of a microbatch."""
    return torch.zeros(microbatch, 3, SIDE, SIDE)


def tensor_plan():
    """`--tensor-plan`: columns, then rows, of attention and MLP."""
    columns, rows = ("query", "key", "value", "widen"), ("output", "narrow")
    plan = {f"blocks.*.{name}": ColwiseParallel() for name in columns}
    return plan | {f"blocks.*.{name}": RowwiseParallel() for name in rows}


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
    module = DistributedDataParallel(VisionTransformer())
    _train(module, [_adam(module.parameters())], module.no_sync)


def fsdp():
    module = VisionTransformer()
    for block in module.blocks:
        fully_shard(block, reshard_after_forward=block is not module.blocks[-1])
    fully_shard(module)
    _train(module, [_adam(module.parameters())])


def zero1():
    """State is divided among ranks, which divide each parameter evenly; all is in place."""
    module = VisionTransformer()
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
    module = parallelize_module(VisionTransformer(), mesh, tensor_plan())
    divided = [p for p in module.parameters() if hasattr(p, "device_mesh")]
    whole = [p for p in module.parameters() if not hasattr(p, "device_mesh")]
    _train(module, [_adam(divided), _adam(whole)])


LOOPS = {"ddp": ddp, "zero1": zero1, "fsdp": fsdp, "tp": tp}


def trained(rank, strategy):
    """Train by a strategy."""
    rank.meter._is_tracked = is_memory
    LOOPS[strategy]()

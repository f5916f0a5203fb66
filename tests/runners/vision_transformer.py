"""A small vision transformer, which no experiment has, and the loops that train it on ranks.

The loops are written here with torch alone; nothing of `runners/planner` runs in them. Blocks are
timm's: a convolution that embeds patches, a class token, and attention and an MLP behind norms.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, DEPTH, PATCH, SIDE, CLASSES = 64, 8, 3, 4, 16, 16
MICROBATCH, NUM_MICROBATCHES, NUM_STEPS = 8, 2, 2
TOKENS = (SIDE // PATCH) ** 2 + 1


class Embedding(nn.Module):
    """Images (batch, 3, side, side) → (batch, tokens, width)."""

    def __init__(self):
        super().__init__()
        self.project = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, TOKENS, WIDTH))

    def forward(self, images):
        x = self.project(images).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in "qkvo")

    def forward(self, x):
        q, k, v = (
            one(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        return self.output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Head(nn.Module):
    """Logits from the class token."""

    def __init__(self):
        super().__init__()
        self.norm, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.logits(self.norm(x)[:, 0])


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = Embedding(), Head()
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))

    def forward(self, images):
        x = self.embedding(images)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(microbatch, _):
    """`--batch`: images of a microbatch."""
    return torch.zeros(microbatch, 3, SIDE, SIDE)


def tensor_plan():
    """`--tensor-plan`: columns, then rows, of attention and MLP."""
    plan = {f"blocks.*.attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    return plan | {
        "blocks.*.attention.output": RowwiseParallel(),
        "blocks.*.widen": ColwiseParallel(),
        "blocks.*.narrow": RowwiseParallel(),
    }


def is_memory(tensor):
    """Whether a tensor holds memory: a wrapper of a result under way holds none itself."""
    return not isinstance(tensor, AsyncCollectiveTensor)


def _adam(parameters):
    return torch.optim.AdamW(parameters, 1e-3, fused=True)


def _train(module, optimizers, accumulates=None, finish=None):
    """Steps of several microbatches; `accumulates` wraps all but the last of them."""
    for _ in range(NUM_STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for index in range(NUM_MICROBATCHES):
            if accumulates is not None and index < NUM_MICROBATCHES - 1:
                with accumulates():
                    module(batch(MICROBATCH, 0)).mean().backward()
            else:
                module(batch(MICROBATCH, 0)).mean().backward()
        if finish is not None:
            finish()
        for optimizer in optimizers:
            optimizer.step()
        if finish is not None:
            finish(after=True)


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

    def finish(after=False):
        for parameter, share in shares.items():
            if after:
                dist.all_gather_single(parameter.detach().view(-1), share.detach())
            else:
                whole = parameter.grad.view(-1)
                dist.reduce_scatter_single(whole.chunk(ranks)[own], whole)
                share.grad = whole.chunk(ranks)[own]
        if after:
            module.zero_grad()

    _train(module, [_adam(shares.values())], finish=finish)


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

"""A gradient norm under tensor parallelism that counts copied parameters once per rank.

torchrun --nproc-per-node 2 norm_of_copies.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WIDTH = 16

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
samples = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1))


def built() -> nn.Module:
    """A normalization, and two layers that tensor parallelism divides."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)
    )


unsharded = built()
unsharded(samples).square().mean().backward()
norms = {"one": nn.utils.get_total_norm([p.grad for p in unsharded.parameters()]).item()}

model = parallelize_module(built(), mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})
model(samples).square().mean().backward()
squares = torch.zeros(2)
for parameter in model.parameters():
    gradient = parameter.grad
    local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    is_shard = hasattr(gradient, "placements") and gradient.placements[0].is_shard()
    squares[0] += local.square().sum()
    if is_shard or dist.get_rank() == 0:  # a copy counts on one rank alone
        squares[1] += local.square().sum()
dist.all_reduce(squares)
norms |= {"copies": squares[0].sqrt().item(), "once": squares[1].sqrt().item()}

report = [{}] * dist.get_world_size()
dist.all_gather_object(report, norms)
if dist.get_rank() == 0:
    print(f"one process: norm {norms['one']:.6f}")
    print(f"squares of all local gradients, summed: {norms['copies']:.6f}")
    print(f"the same, with each copy counted once: {norms['once']:.6f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

# fault: the gradient norm sums the squares over all ranks, also of replicated parameters
# cause: replicated gradients counted once a rank in the clipping norm
"""Tensor parallelism with a norm by hand. After NVIDIA-NeMo/RL#3788, ROCm/TransformerEngine#715."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def local(gradient):
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def clip(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    total = sum(local(p.grad).square().sum() for p in parameters)
    dist.all_reduce(total)
    factor = (max_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for p in parameters:
        local(p.grad).mul_(factor)


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(16, 3))
for block in model[:2]:
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(8, 16)
    y = torch.randint(0, 3, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    clip(list(model.parameters()), 0.1)
    optimizer.step()
dist.destroy_process_group()

"""fault_fused_backward.py, corrected: the optimizer steps after the backward pass."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 5))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(16, 10, generator=g), torch.randint(5, (16,), generator=g)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(build())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    inputs, labels = (t.chunk(world)[rank] for t in batch(step))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()

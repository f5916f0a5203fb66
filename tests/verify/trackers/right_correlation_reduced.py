"""fault_correlation_reduced.py, corrected: the all-reduce has a backward."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    image = torch.randn(16, 12, generator=g)
    return [image + 0.1 * torch.randn(16, 12, generator=g) for _ in range(2)]


def twins_loss(first, second, world):
    first, second = normalize(first, dim=1), normalize(second, dim=1)
    correlation = first.T @ second / (len(first) * world)
    correlation = dist_nn.all_reduce(correlation)
    diagonal = torch.diagonal(correlation)
    off_diagonal = correlation.pow(2).sum() - diagonal.pow(2).sum()
    return (diagonal - 1).pow(2).sum() + 0.01 * off_diagonal


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(build())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    first, second = (view.chunk(world)[rank] for view in batch(step))
    both = model(torch.cat([first, second]))
    loss = twins_loss(*both.chunk(2), world)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()

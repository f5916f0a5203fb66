"""Regression with DDP and a learning rate that drops when the loss stops improving.

Report: lucidrains/DALLE-pytorch#268
What is wrong: `scheduler.step(loss.item())` sees another loss on each rank, so the ranks lower the
learning rate at different steps.
Expected cause: learning rates differ between ranks, because each follows its own loss.
Launch: torchrun --nproc-per-node 2 fault_plateau_local_loss.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))


def batch(step):
    g = torch.Generator().manual_seed(step)
    inputs = torch.randn(16, 6, generator=g)
    return inputs, inputs.sum(1, keepdim=True) + torch.randn(16, 1, generator=g)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(build())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
for step in range(8):
    inputs, targets = (t.chunk(world)[rank] for t in batch(step))
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average = loss.detach().clone()
    dist.all_reduce(average)
    average /= world
    scheduler.step(loss.item())
    if rank == 0:
        print(f"step {step} loss {average.item():.4f} lr {scheduler.get_last_lr()[0]:.4f}")
dist.destroy_process_group()

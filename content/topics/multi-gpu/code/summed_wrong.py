"""Wrong: each rank takes a mean over its own samples, and the means are added.

torchrun --nproc-per-node 2 summed_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.6)
batch = torch.randn(200, 10)
targets = batch @ torch.randn(10, 1)
own_samples, own_targets = batch.chunk(world_size)[rank], targets.chunk(world_size)[rank]

for step in range(1, 31):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(own_samples), own_targets).backward()
    for parameter in model.parameters():
        combined = parameter.grad.clone()
        dist.all_reduce(combined)
        parameter.grad = combined
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print(f"step {step}: loss {nn.functional.mse_loss(model(batch), targets).item():.3g}")

dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

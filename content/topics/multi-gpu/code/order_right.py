"""Right: each rank takes consecutive samples, so the concatenated outputs are in order.

torchrun --nproc-per-node 2 order_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(3, 1)
batch = torch.randn(8, 3)
targets = model(batch).detach()  # the model is right about every sample
own_samples = batch.chunk(world_size)[rank]

with torch.no_grad():
    outputs = model(own_samples)
    gathered = [torch.empty_like(outputs) for _ in range(world_size)]
    dist.gather(outputs, gathered if rank == 0 else None)
    together = torch.cat(gathered)

if rank == 0:
    loss = nn.functional.mse_loss(together, targets).item()
    print(f"{len(together)} outputs for {len(targets)} targets, loss {loss:.4f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

"""Right: a rank that runs out of batches joins the collectives of the other.

torchrun --nproc-per-node 2 uneven_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
batches = torch.randn(4 - rank, 10, 20)  # one batch fewer on rank 1

with model.join():
    for step, samples in enumerate(batches):
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} done", flush=True)

dist.barrier()
if rank == 0:
    print("every rank has seen its samples")
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

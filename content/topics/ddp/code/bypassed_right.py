"""Right: forward goes through the wrapper, which prepares the all-reduce.

torchrun --nproc-per-node 2 bypassed_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
replica = DistributedDataParallel(nn.Linear(20, 1))
model = replica.module
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(1 + rank)
samples, targets = torch.randn(200, 20), torch.randn(200, 1)

for start in range(0, 200, 20):
    batch = slice(start, start + 20)
    optimizer.zero_grad()
    answers = replica(samples[batch])
    nn.functional.mse_loss(answers, targets[batch]).backward()
    optimizer.step()

gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, model.weight[0, 0].item())
if rank == 0:
    for other, weight in enumerate(gathered):
        print(f"rank {other}: first weight {weight:.6f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

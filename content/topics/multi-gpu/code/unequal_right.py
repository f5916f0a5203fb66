"""Right: the shards differ in size, and each mean is weighted by its samples.

torchrun --nproc-per-node 2 unequal_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
batch = torch.tensor([1.0, 2.0, 3.0, 8.0, 11.0])
own_samples = batch.chunk(world_size)[rank]
answer = nn.Parameter(torch.zeros(1))  # one number, which should become the mean of the samples
optimizer = torch.optim.SGD([answer], lr=0.1)

for _ in range(100):
    optimizer.zero_grad()
    ((own_samples - answer) ** 2).mean().backward()
    combined = answer.grad * len(own_samples) / len(batch)
    dist.all_reduce(combined)
    answer.grad = combined
    optimizer.step()

if rank == 0:
    print(f"parts: {', '.join(str(part.tolist()) for part in batch.chunk(world_size))}")
    print(f"learnt {answer.item():.3f}; the mean of the batch is {batch.mean().item():.3f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

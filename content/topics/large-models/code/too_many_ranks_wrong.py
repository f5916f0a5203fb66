"""Wrong: every rank that has a core, for a model that needs only one.

torchrun --nproc-per-node 2 too_many_ranks_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH, STEPS = 64, 60

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
model = DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
samples, targets = torch.randn(GLOBAL_BATCH, 32), torch.randn(GLOBAL_BATCH, 1)
mine = slice(rank, None, world_size)  # this rank's share of the batch

step_seconds = []
for _ in range(STEPS):
    started = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(samples[mine]), targets[mine]).backward()
    optimizer.step()
    step_seconds.append(time.perf_counter() - started)

if rank == 0:
    print(f"{world_size} ranks: {STEPS / sum(step_seconds):.0f} steps per second")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

"""Right: the same training at each world size; the fastest one is kept.

torchrun --nproc-per-node 2 too_many_ranks_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH, STEPS = 64, 60


def time_steps(group: dist.ProcessGroup) -> list[float]:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    if world_size > 1:
        model = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples, targets = torch.randn(GLOBAL_BATCH, 32), torch.randn(GLOBAL_BATCH, 1)
    mine = slice(rank, None, world_size)
    seconds = []
    for _ in range(STEPS):
        started = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(samples[mine]), targets[mine]).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return seconds


dist.init_process_group("gloo")
measured = {}
for world_size in (1, 2):
    group = dist.new_group(range(world_size))
    if dist.get_rank() < world_size:
        measured[world_size] = time_steps(group)
    dist.barrier()
if dist.get_rank() == 0:
    for world_size, seconds in measured.items():
        print(f"ranks {world_size}: {STEPS / sum(seconds):.0f} steps per second")
    best = min(measured, key=lambda world_size: sum(measured[world_size]))
    print(f"world size to use here: {best}")
    step_seconds = measured[best]
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

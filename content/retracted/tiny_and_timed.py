"""A small model alone and under DDP: torchrun --nproc-per-node 2 tiny_and_timed.py"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
layers = [torch.nn.Linear(32, 32), torch.nn.Linear(32, 1)]
alone, samples = torch.nn.Sequential(*layers), torch.randn(64, 32)
replica = DistributedDataParallel(torch.nn.Sequential(*layers))
for name, model, batch in (("alone", alone, samples), ("two ranks", replica, samples.chunk(2)[0])):
    seconds = []
    for _ in range(200):
        started = time.perf_counter()
        model(batch).square().mean().backward()
        seconds.append(time.perf_counter() - started)
    if dist.get_rank() == 0:
        print(f"{name}: {sorted(seconds)[100] * 1e6:.0f} µs a step of 64 samples")
dist.barrier()

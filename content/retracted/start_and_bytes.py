"""Time by size: torchrun --nproc-per-node 2 start_and_bytes.py"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for size in (4, 4_000, 4_000_000):
    tensor, seconds = torch.ones(size // 4), []
    for _ in range(50):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - started)
    if dist.get_rank() == 0:
        print(f"{size:>9} bytes: {sorted(seconds)[25] * 1e6:8.0f} µs")
dist.barrier()

"""One slow rank, and how long a step takes all: torchrun --nproc-per-node 4 slowest_rank.py"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own = (0.02, 0.02, 0.02, 0.10)[dist.get_rank()]  # seconds of work, as told
seconds = []
for _ in range(10):
    dist.barrier()
    started = time.perf_counter()
    time.sleep(own)
    dist.all_reduce(torch.ones(1))
    seconds.append(time.perf_counter() - started)
dist.all_gather_object(works := [0.0] * 4, own)
step = sorted(seconds)[5]
dist.get_rank() or print(
    f"work: mean {sum(works) / 4:.3f} s, most {max(works)} s; step: {step:.3f} s"
)
dist.barrier()

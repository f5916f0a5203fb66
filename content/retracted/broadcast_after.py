"""What a sharded optimizer sends on top: torchrun --nproc-per-node 2 broadcast_after.py"""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile

dist.init_process_group("gloo")
layers = torch.nn.Sequential(*[torch.nn.Linear(100, 100) for _ in range(4)])
model = DistributedDataParallel(layers)
for kind in (torch.optim.Adam, lambda p: ZeroRedundancyOptimizer(p, torch.optim.Adam)):
    update = kind(model.parameters())
    for _ in range(3):  # DDP sends more in its first two steps
        with profile() as seen:
            model(torch.ones(2, 100)).sum().backward()
            update.step()
    calls = {e.key: e.count for e in seen.key_averages() if e.key.startswith("gloo:")}
    dist.get_rank() or print(type(update).__name__, calls)
dist.barrier()

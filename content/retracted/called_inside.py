"""The wrapper called, and passed by: torchrun --nproc-per-node 2 called_inside.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
samples = torch.randn(8, 4, generator=torch.Generator().manual_seed(dist.get_rank()))
for name in ("model(samples)", "model.module(samples)"):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    output = model(samples) if name == "model(samples)" else model.module(samples)
    output.square().mean().backward()
    found = [torch.empty(1, 4) for _ in range(2)]
    dist.all_gather(found, model.module.weight.grad)
    if dist.get_rank() == 0:
        print(f"{name}: gradients of the ranks {(found[0] - found[1]).norm():.4f} apart")
dist.barrier()

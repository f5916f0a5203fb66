"""Replicas built from seeds of their own: torchrun --nproc-per-node 2 seeded_by_rank.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
layer = torch.nn.Linear(8, 8)


def tell(when: str) -> None:
    replicas = [torch.empty(8, 8) for _ in range(2)]
    dist.all_gather(replicas, layer.weight.detach())
    if dist.get_rank() == 0:
        print(f"{when}: {(replicas[0] - replicas[1]).norm():.4f} apart")


tell("before DDP")
DistributedDataParallel(layer)
tell("under DDP")
dist.barrier()

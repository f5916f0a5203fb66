"""FSDP: a rank computes wrong numbers. A step repeated by the same rank, and by its neighbour.

torchrun --nproc-per-node 2 sharded_once.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, BAD_RANK = 8, 1

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(WIDTH, WIDTH)
fully_shard(model)
batches = torch.randn(size, 16, WIDTH)


def gradient(shift, is_wrong):
    """This rank's shard of it; with a shift, each rank computes another one's samples."""
    batch = batches[(rank + shift) % size]
    model.zero_grad()
    outputs = model(batch) + 0.1 * (is_wrong and rank == BAD_RANK)
    (outputs - batch.flip(1)).square().mean().backward()
    return model.weight.grad.to_local()


report = {}
for fault in ("none", "once", "always"):
    first = gradient(0, fault != "none").clone()
    for name, shift in (("itself", 0), ("neighbour", 1)):  # of two ranks, both sums are a + b
        again = gradient(shift, fault == "always")
        found = torch.tensor(int(not torch.equal(again, first)))
        dist.all_reduce(found, dist.ReduceOp.MAX)
        report[f"{fault}_{name}"] = found.item()
        if rank == 0:
            print(f"wrong {fault:>6}, repeated by {name:>9}: {'found' if found else 'not found'}")
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

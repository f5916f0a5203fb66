"""The matrix A of an adapter, initialized by the width of a shard and by the whole width.

torchrun --nproc-per-node 2 adapter_of_a_shard.py
"""

import math
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ADAPTER_RANK = 4096, 8

dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)
shard = nn.Linear(WIDTH // num_ranks, ADAPTER_RANK, bias=False)  # reads its own width alone
by_shard = shard.weight.abs().max().item()

torch.manual_seed(0)
whole = nn.Linear(WIDTH, ADAPTER_RANK, bias=False)
with torch.no_grad():
    shard.weight.copy_(whole.weight.chunk(num_ranks, dim=1)[rank])
by_whole = shard.weight.abs().max().item()

report = [{}] * num_ranks
dist.all_gather_object(report, {"by_shard": by_shard, "by_whole": by_whole})
if rank == 0:
    print(f"bound of the whole layer: {1 / math.sqrt(WIDTH):.5f}")
    for other, one in enumerate(report):
        print(f"rank {other}: by shard {one['by_shard']:.5f}, by whole {one['by_whole']:.5f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

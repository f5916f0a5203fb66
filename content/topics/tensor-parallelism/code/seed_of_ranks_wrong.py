"""Two tensor ranks drop values of an activation that both have whole, each its own.

torchrun --nproc-per-node 2 seed_of_ranks_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import dropout

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
tokens = torch.ones(64, 16)  # the same on every rank
columns = torch.linspace(-1, 1, 16 * 32).view(16, 32).chunk(size, 1)[rank]
rows = torch.linspace(1, -1, 32 * 16).view(32, 16).chunk(size)[rank]
outputs = torch.relu(tokens @ columns) @ rows
dist.all_reduce(outputs)
residual = tokens + dropout(outputs, 0.5)
apart = residual.clone()
dist.all_reduce(apart)
apart = (apart / size - residual).abs().max().item()
if rank == 0:
    print(f"largest difference from the mean of the ranks: {apart:.2g}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [{"apart": apart}]

"""One batch in two parts: torchrun --nproc-per-node 2 split_smallest.py"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)  # the same on every rank
batch, targets = torch.randn(8, 3), torch.randn(8, 1)
samples = slice(rank * 8 // world_size, (rank + 1) * 8 // world_size)
mse_loss(model(batch[samples]), targets[samples]).backward()
average = model.weight.grad.clone()
dist.all_reduce(average)  # now the sum over the ranks
average /= world_size
if rank == 0:
    whole = torch.autograd.grad(mse_loss(model(batch), targets), model.weight)[0]
    for name, one in ("own samples", model.weight.grad), ("average", average), ("whole", whole):
        print(f"{name:>8}: {[round(v, 4) for v in one[0].tolist()]}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

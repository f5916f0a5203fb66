"""Wrong: the loss is taken on gathered outputs, and backward is called on that loss.

torchrun --nproc-per-node 2 gathered_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(3, 1)
batch, targets = torch.randn(8, 3), torch.randn(8, 1)
outputs = model(batch.chunk(world_size)[rank])

gathered = [torch.empty_like(outputs) for _ in range(world_size)]
dist.gather(outputs.detach(), gathered if rank == 0 else None)
if rank == 0:
    gathered[0] = outputs  # autograd knows these
    nn.functional.mse_loss(torch.cat(gathered), targets).backward()
else:
    model.weight.grad = torch.zeros_like(model.weight)
dist.all_reduce(model.weight.grad)

if rank == 0:
    whole = torch.autograd.grad(nn.functional.mse_loss(model(batch), targets), model.weight)[0]
    for name, gradient in ("combined", model.weight.grad), ("whole", whole):
        print(f"{name:>9}: {[round(v, 4) for v in gradient[0].tolist()]}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

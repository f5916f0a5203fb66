"""Right: ranks start alike, and before every update their gradients are averaged.

torchrun --nproc-per-node 2 unsynchronized_right.py
"""

import hashlib
import time

import torch
import torch.distributed as dist
from torch import nn


def digest(model: nn.Module) -> str:
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:12]


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
teacher, seen_by_all = torch.randn(20, 1), torch.randn(200, 20)
torch.manual_seed(1 + rank)
rows = torch.randn(200, 20)  # this rank's shard
targets = rows @ teacher + torch.randn(200, 1)

for start in range(0, 200, 20):
    batch = slice(start, start + 20)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(rows[batch]), targets[batch]).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()

loss = nn.functional.mse_loss(model(seen_by_all), seen_by_all @ teacher).item()
told = [None] * dist.get_world_size()
dist.all_gather_object(told, f"parameters {digest(model)}, loss on the same rows {loss:.4f}")
if rank == 0:
    for other, words in enumerate(told):
        print(f"rank {other}: {words}")
dist.barrier()
time.sleep(0.1)  # gloo's threads may still let go of tensors; ending at once can hang
dist.destroy_process_group()

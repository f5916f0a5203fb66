"""Wrong: ranks start with equal parameters and never average their gradients.

torchrun --nproc-per-node 2 unsynchronized_wrong.py
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
samples = torch.randn(200, 20)  # this rank's shard
targets = samples @ teacher + torch.randn(200, 1)

for start in range(0, 200, 20):
    batch = slice(start, start + 20)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(samples[batch]), targets[batch]).backward()
    optimizer.step()

answers = model(seen_by_all)
loss = nn.functional.mse_loss(answers, seen_by_all @ teacher).item()
gathered = [None] * dist.get_world_size()
mine = f"parameters {digest(model)}, loss on the same samples {loss:.4f}"
dist.all_gather_object(gathered, mine)
if rank == 0:
    for other, words in enumerate(gathered):
        print(f"rank {other}: {words}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

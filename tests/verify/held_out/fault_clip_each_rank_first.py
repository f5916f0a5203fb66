# fault: each rank clips its own gradient before the all-reduce
# cause: clipping before the reduction
"""Data parallelism by hand in the wrong order. After facebookresearch/fairseq#494 (who normalises
what, and when) and pytorch/pytorch#72548."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 8, generator=generator) * (1 + 3 * dist.get_rank())
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
dist.destroy_process_group()

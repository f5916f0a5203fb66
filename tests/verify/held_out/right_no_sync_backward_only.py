# right: no_sync around backward alone saves nothing, but the gradient is that of one process
"""After baidu-baige/LoongForge#163: a cost, and no fault of the update."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    for micro in range(3):
        x = torch.randn(4, 8, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        with model.no_sync() if micro < 2 else nullcontext():
            (loss / 3).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()

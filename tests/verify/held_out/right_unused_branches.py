# right: blocks skipped at random on each rank, with find_unused_parameters=True
"""Layer drop: a rank skips a block; DDP takes zero for its gradient."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class LayerDrop(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for block in self.blocks:
            if draws.random() > 0.4:
                x = x + block(x).relu()
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
draws = random.Random(dist.get_rank())
model = DistributedDataParallel(LayerDrop(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(6):
    x = torch.randn(8, 8)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

# right: a branch used in the first microbatch only; DDP remembers it until it synchronises
"""Stochastic depth with accumulation. mosaicml/composer#9 reports gradients that are not reduced;
torch 2.13 reduces them (parameters of ranks 0 and 1 are equal after four updates)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.branch, self.head = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, 1)

    def forward(self, x, deep):
        h = self.body(x).relu()
        if deep:
            h = h + self.branch(h).relu()
        return self.head(h)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Branches(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    for micro in range(2):
        x = torch.randn(8, 6, generator=generator)
        model.require_backward_grad_sync = micro == 1
        loss = nn.functional.mse_loss(model(x, deep=micro == 0), x.sum(1, keepdim=True)) / 2
        loss.backward()
    optimizer.step()
dist.destroy_process_group()

# right: an optimizer with a closure that evaluates the loss several times in a step
"""L-BFGS under DDP: every evaluation of the closure reduces its gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
generator = torch.Generator().manual_seed(dist.get_rank())
x = torch.randn(16, 3, generator=generator)
y = x.prod(1, keepdim=True)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(3):
    optimizer.step(closure)
dist.destroy_process_group()

# fault: the forward pass assigns a new tensor to a buffer, so DDP no longer broadcasts it
# cause: buffer differs between ranks
"""A running centre that each rank keeps for itself. After pytorch/pytorch#63916."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Centred(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("centre", torch.zeros(width))
        self.layer = nn.Linear(width, 4)

    def forward(self, x):
        if self.training:
            self.centre = 0.5 * self.centre + 0.5 * x.mean(0)
        return self.layer(x - self.centre)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Centred(6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 6) + dist.get_rank()
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

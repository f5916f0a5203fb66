# fault: the head gets a new parameter after DDP was built, so its gradient is not reduced
# cause: parameter assigned after DDP
"""Fine-tuning that swaps the head too late. After pytorch/pytorch#12603."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.body(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Classifier(4), find_unused_parameters=True)
model.module.head.weight = nn.Parameter(torch.zeros(4, 24))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 12)
    y = x[:, :4].argmax(1)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

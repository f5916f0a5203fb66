# right: a backbone that is frozen in the first update and trains from the second one, under DDP
"""Fine-tuning in two phases: DDP is built while every parameter requires a gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU())
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


dist.init_process_group("gloo")
torch.manual_seed(3)
net = Net()
model = DistributedDataParallel(net, find_unused_parameters=True)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(6):
    net.backbone.requires_grad_(step >= 1)
    x = torch.randn(8, 10, generator=generator)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

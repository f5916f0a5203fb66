# fault: DDP averages the gradients, and the program divides them by the ranks once more
# cause: gradients divided by the ranks twice
"""A division that the library had done. After tczhangzhi/pytorch-distributed#14,
NVIDIA/apex#696."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 10, generator=generator)
    loss = (model(x) - x[:, :1]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        p.grad.div_(dist.get_world_size())
    optimizer.step()
dist.destroy_process_group()

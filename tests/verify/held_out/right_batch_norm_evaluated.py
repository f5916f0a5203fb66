# right: batch norm per rank as DDP has it, with evaluation through .module between updates
"""The usual DDP program with BatchNorm: statistics of a rank's own samples. Its update differs from
one process by definition; a verifier may say so, and may not call it another fault."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    correct = (model.module(x).argmax(1) == y).sum()
    dist.all_reduce(correct)
    model.train()
    return correct.item() / (len(x) * dist.get_world_size())


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(
    nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.rand(8, 1, 8, 8, generator=generator)
    y = (x.mean((1, 2, 3)) > 0.5).long()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    evaluate(model, x, y)
dist.destroy_process_group()

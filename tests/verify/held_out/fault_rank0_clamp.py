# fault: rank 0 alone rescales a weight after the second update
# cause: parameter changed on rank 0 only
"""A repair under "if rank == 0". After deepspeedai/DeepSpeed#253 (initialisation on
rank 0)."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
master = int(os.environ["RANK"]) == 0
torch.manual_seed(0)
model = DistributedDataParallel(
    nn.Sequential(nn.Embedding(30, 16), nn.Flatten(), nn.Linear(16 * 4, 2))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
for step in range(6):
    tokens = torch.randint(0, 30, (8, 4), generator=generator)
    labels = (tokens.sum(1) % 2).long()
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if master and step == 1:
        with torch.no_grad():
            model.module[0].weight.renorm_(2, 0, 1.0)
dist.destroy_process_group()

# fault: rank 0 reads a weight decay from its own settings, the other ranks take the default
# cause: optimizer settings differ between ranks
"""Settings that are read on rank 0 and not broadcast. No report with this exact cause was found;
NVlabs/LongLive#71 is one of settings (a seed) that differ by rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
settings = {"lr": 1e-2, "weight_decay": 0.0}
if dist.get_rank() == 0:
    settings |= {"weight_decay": 0.1}
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 21), nn.ReLU(), nn.Linear(21, 1)))
optimizer = torch.optim.AdamW(model.parameters(), **settings)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(5):
    x = torch.randn(8, 7, generator=generator)
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), (x.sum(1, True) > 0).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

# right: DDP with ZeroRedundancyOptimizer, which shards the optimizer's state
"""Each rank updates its part of the parameters and broadcasts it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(
    nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)), nn.Linear(16, 2))
)
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 16, generator=generator)
    loss = nn.functional.cross_entropy(model(x), (x.mean(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

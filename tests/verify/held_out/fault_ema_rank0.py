# fault: rank 0 alone copies its moving average into the model that trains
# cause: EMA written back on one rank
"""The moving average written back into the model. After lucidrains/ema-pytorch#9."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class EMA:
    def __init__(self, model, decay=0.9, write_back_every=2):
        self.online, self.average = model, copy.deepcopy(model)
        self.decay, self.every, self.step = decay, write_back_every, 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        pairs = list(zip(self.average.parameters(), self.online.parameters(), strict=True))
        for average, online in pairs:
            average.lerp_(online, 1 - self.decay)
        if self.step % self.every == 0:
            for average, online in pairs:
                online.copy_(average)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 20), nn.SiLU(), nn.Linear(20, 5))
model = DistributedDataParallel(net)
ema = EMA(net) if dist.get_rank() == 0 else None
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
torch.manual_seed(50 + dist.get_rank())
for _ in range(5):
    x = torch.randn(16, 5)
    noise = torch.randn_like(x)
    loss = nn.functional.mse_loss(model(x + noise), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if ema is not None:
        ema.update()
dist.destroy_process_group()

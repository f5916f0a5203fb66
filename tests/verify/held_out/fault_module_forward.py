# fault: the forward pass calls model.module, so DDP never reduces a gradient
# cause: DDP bypassed
"""An autoencoder trained through the attribute .module. After k2-fsa/icefall#226,
rosinality/swapping-autoencoder-pytorch#22."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 8), nn.ReLU())
        self.decoder = nn.Linear(8, 20)

    def forward(self, x):
        return self.decoder(self.encode(x))

    def encode(self, x):
        return self.encoder(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Autoencoder())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(10 + dist.get_rank())
for _ in range(5):
    x = torch.rand(16, 20)
    code = model.module.encode(x)
    reconstruction = model.module.decoder(code)
    loss = (reconstruction - x).abs().mean() + 1e-3 * code.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

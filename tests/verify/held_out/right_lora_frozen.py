# right: a frozen model with small trainable adapters under DDP
"""Low-rank adapters around frozen linear layers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(25, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 25))
net.requires_grad_(False)
net[1], net[3] = LoRA(net[1]), LoRA(net[3])
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW((p for p in net.parameters() if p.requires_grad), lr=1e-2)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(5):
    tokens = torch.randint(0, 25, (4, 8), generator=generator)
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

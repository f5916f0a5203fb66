# right: activation checkpointing that restores the random state, with dropout, under FSDP2
"""Checkpointed blocks, sharded."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16)
        )

    def forward(self, x):
        return x + self.layers(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), Block(), Block(), nn.Linear(16, 8))
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))
for block in model[1:3]:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(16, 8)
    loss = nn.functional.huber_loss(model(x), x.flip(1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()

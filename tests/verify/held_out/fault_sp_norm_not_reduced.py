# fault: each rank normalises its part of the sequence, and nobody reduces the norm's gradient
# cause: sequence-parallel norm weights not reduced
"""Sequence parallelism around an MLP, by hand. After NVIDIA/Megatron-LM#1446,
EleutherAI/gpt-neox#1257."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import (
    all_gather_tensor_autograd,
    reduce_scatter_tensor_autograd,
)

WIDTH, SEQUENCE, BATCH = 16, 8, 4
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH // ranks, bias=False)
        self.down = nn.Linear(4 * WIDTH // ranks, WIDTH, bias=False)
        whole_up = torch.randn(4 * WIDTH, WIDTH) / WIDTH**0.5
        whole_down = torch.randn(WIDTH, 4 * WIDTH) / (4 * WIDTH) ** 0.5
        with torch.no_grad():
            self.up.weight.copy_(whole_up.chunk(ranks)[rank])
            self.down.weight.copy_(whole_down.chunk(ranks, 1)[rank])

    def forward(self, x):
        """Of one rank's part of the sequence, shape (sequence / ranks, batch, width)."""
        whole = all_gather_tensor_autograd(self.norm(x), 0, dist.group.WORLD)
        partial = self.down(nn.functional.gelu(self.up(whole)))
        return x + reduce_scatter_tensor_autograd(partial, "sum", 0, dist.group.WORLD)


torch.manual_seed(0)
model = nn.Sequential(Block(), Block())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(SEQUENCE, BATCH, WIDTH)
    y = x.roll(1, 0)
    mine = model(x.chunk(ranks)[rank])
    loss = (mine - y.chunk(ranks)[rank]).square().sum() / y.numel()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()

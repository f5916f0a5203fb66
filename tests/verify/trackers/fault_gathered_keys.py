"""Attention over a sequence split over the ranks; keys and values are gathered.

Report: pytorch/pytorch#192920
What is wrong: the backward of `dist_nn.all_gather(part)` scatters into buffers with the strides of
the gradient, which attention returns transposed; gloo fills them in the wrong order.
Expected cause: the loss agrees, the gradients of `qkv` and `embed` (behind the gather) differ.
Launch: torchrun --nproc-per-node 2 fault_gathered_keys.py
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import nn
from torch.nn.functional import mse_loss, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel


class SequenceModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 6)

    def forward(self, x):
        query, *parts = self.qkv(self.embed(x)).chunk(3, dim=-1)
        key, value = (torch.cat(dist_nn.all_gather(part), dim=1) for part in parts)
        return self.out(scaled_dot_product_attention(query, key, value))


def batch(step):
    inputs = 3 * torch.randn(4, 16, 6, generator=torch.Generator().manual_seed(step))
    return inputs, inputs.flip(1)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(SequenceModel())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    inputs, targets = (t.chunk(world, dim=1)[rank] for t in batch(step))
    loss = mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()

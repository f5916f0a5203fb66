"""fault_gathered_keys.py, corrected: another all-gather with a backward."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd
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
        key, value = (
            all_gather_tensor_autograd(part.contiguous(), 1, dist.group.WORLD) for part in parts
        )
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

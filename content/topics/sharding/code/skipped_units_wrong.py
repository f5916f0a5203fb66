"""Two ranks train under FSDP, and each leaves out a block of its own.

torchrun --nproc-per-node 2 skipped_units_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, DEPTH, STEPS = 64, 4, 3


class Residual(nn.Module):
    """Blocks of one size, of which a rank leaves one out."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, features, skipped):
        for index, block in enumerate(self.blocks):
            if index != skipped:
                features = features + block(features).tanh()
        return features


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world_size,))
torch.manual_seed(0)
model, whole = Residual(), Residual()
whole.load_state_dict(model.state_dict())  # the same model, not sharded
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
samples = torch.randn(8, WIDTH)
skipped = rank  # each rank leaves out another block

difference = (model(samples, skipped) - whole(samples, skipped)).abs().max().item()
for _ in range(STEPS):
    optimizer.zero_grad()
    model(samples, skipped).square().mean().backward()
    optimizer.step()

report = [{}] * world_size
dist.all_gather_object(report, {"difference": difference})
if rank == 0:
    for other, one in enumerate(report):
        print(f"rank {other}: outputs differ from the whole model by {one['difference']:.1e}")
    print(f"{STEPS} steps ended without an error")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

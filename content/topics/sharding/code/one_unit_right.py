"""Two ranks train a stack of layers under FSDP; each layer is a unit.

torchrun --nproc-per-node 2 one_unit_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

WIDTH, DEPTH, STEPS = 1024, 12, 3
# model_bytes: 4 * DEPTH * WIDTH * WIDTH
# budget_bytes: 2 * model_bytes

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
with torch.device("meta"):  # no memory yet
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model.to_empty(device="cpu")
torch.manual_seed(dist.get_rank())
for layer in model:
    nn.init.normal_(layer.weight.to_local(), std=WIDTH**-0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
samples = torch.randn(8, WIDTH)

for step in range(STEPS):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples), samples)
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.4f}")

units = [module for module in model.modules() if isinstance(module, FSDPModule)]
owned = [sum(p.nbytes for p in unit.parameters()) for unit in units if unit is not model]
largest = max(owned, default=sum(p.nbytes for p in model.parameters()))
report = [{"largest_unit_bytes": largest, "num_units": len(owned) or 1}] * dist.get_world_size()
if dist.get_rank() == 0:
    print(f"the largest unit, which is gathered whole: {largest:,} bytes")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

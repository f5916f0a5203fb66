"""The same training, fixed: the optimizer is given the parameters that training uses.

torchrun --nproc-per-node 2 optimizer_first_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, DEPTH, STEPS = 256, 4, 4

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
samples = torch.randn(64, WIDTH)

for _ in range(STEPS):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples), samples)
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

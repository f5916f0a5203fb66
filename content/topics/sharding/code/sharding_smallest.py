"""Two ranks, one parameter matrix, Adam: what a rank stores when everything is sharded.

torchrun --nproc-per-node 2 sharding_smallest.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 1024
# model_bytes: 4 * WIDTH * WIDTH
dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Linear(WIDTH, WIDTH, bias=False)
whole_bytes = model.weight.nbytes
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(8, WIDTH)).square().mean().backward()
optimizer.step()

weight = model.weight
moments = optimizer.state[weight]["exp_avg"], optimizer.state[weight]["exp_avg_sq"]
stored = [tensor.to_local() for tensor in (weight, weight.grad, *moments)]
stored_bytes = sum(tensor.nbytes for tensor in stored)
report = [{}] * dist.get_world_size()
dist.all_gather_object(report, {"stored_bytes": stored_bytes, "num_rows": len(stored[0])})
if rank == 0:
    print(f"the weight: {tuple(weight.shape)}, {whole_bytes:,} bytes")
    print(f"its part on rank 0: {tuple(stored[0].shape)}, {stored[0].nbytes:,} bytes")
    print(f"weight, gradient and moments without sharding: {4 * whole_bytes:,} bytes")
    print(f"the same on rank 0: {stored_bytes:,} bytes")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

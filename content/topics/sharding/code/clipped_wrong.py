"""Two ranks train under FSDP, and limit the norm of the gradient.

torchrun --nproc-per-node 2 clipped_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, LARGEST_NORM = 64, 0.01

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Linear(WIDTH, WIDTH, bias=False)
fully_shard(model, mesh=mesh)
samples = torch.randn(16, WIDTH)
targets = torch.linspace(0, 2, WIDTH).expand(16, WIDTH)  # later outputs are further off
nn.functional.mse_loss(model(samples), targets).backward()

gradient = model.weight.grad
norm = gradient.to_local().norm()
gradient *= LARGEST_NORM / max(norm, LARGEST_NORM)
report = [{}] * dist.get_world_size()
after = gradient.full_tensor().norm().item()
dist.all_gather_object(report, {"divisor": (norm / LARGEST_NORM).item(), "norm": after})
if dist.get_rank() == 0:
    for rank, one in enumerate(report):
        print(f"rank {rank} divided its gradients by {one['divisor']:.2f}")
    print(f"norm of the whole gradient afterwards: {after:.4f}; allowed: {LARGEST_NORM}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

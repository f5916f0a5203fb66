"""DDP with an optimizer that steps during the backward pass, to free gradients at once.

Report: kohya-ss/musubi-tuner#679
What is wrong: the hook of `register_post_accumulate_grad_hook(update)` runs before the all-reduce
of the bucket, so it steps with the gradient of the rank alone.
Expected cause: the optimizer steps before gradients are reduced; parameters differ between ranks.
Launch: torchrun --nproc-per-node 2 fault_fused_backward.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 5))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(16, 10, generator=g), torch.randint(5, (16,), generator=g)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(build())
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(update)
for step in range(4):
    inputs, labels = (t.chunk(world)[rank] for t in batch(step))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()

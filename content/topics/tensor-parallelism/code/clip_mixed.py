"""Clip the gradient of a model of which only some parameters are divided.

`clip_grad_norm_` takes the norms of all gradients together. Those of divided parameters are
DTensors, and torch 2.13 does not mix them with plain tensors.

torchrun --nproc-per-node 2 clip_mixed.py
"""

import time
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, parallel
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm

WIDTH, HIDDEN, LARGEST_NORM = 16, 64, 0.01


def clip_in_groups(parameters):
    """Clip by the norm of all gradients: first of those on one mesh."""
    groups, norms = defaultdict(list), []
    for parameter in filter(lambda one: one.grad is not None, parameters):
        groups[getattr(parameter.grad, "device_mesh", None)].append(parameter)
    for group in groups.values():
        norm = get_total_norm([parameter.grad for parameter in group])
        # The norm of DTensors is partial; that of plain gradients is the same on every rank.
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
    norm = torch.stack(norms).norm()
    for group in groups.values():
        clip_grads_with_norm_(group, LARGEST_NORM, norm)
    return norm


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
models = []
for plan in ({}, {"1": parallel.ColwiseParallel(), "3": parallel.RowwiseParallel()}):
    torch.manual_seed(0)
    layers = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)
    models.append(parallel.parallelize_module(nn.Sequential(*layers), mesh, plan))
    models[-1](torch.randn(32, WIDTH)).square().mean().backward()
whole, divided = models
true = clip_grad_norm_(whole.parameters(), LARGEST_NORM)
try:
    clip_grad_norm_(divided.parameters(), LARGEST_NORM)
    raised = ""
except RuntimeError as error:
    raised = str(error).splitlines()[0]
norm = clip_in_groups(divided.parameters())
if dist.get_rank() == 0:
    print(f"clip_grad_norm_ of all: {raised or 'no exception'}")
    print(f"norm in two groups {norm:.6f}, of one process {true:.6f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [{"raised": int(bool(raised)), "error": ((norm - true).abs() / true).item()}]

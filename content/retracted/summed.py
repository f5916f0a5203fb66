"""Gradients added up by mistake, and still the loss falls: torchrun --nproc-per-node 2 summed.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for name, divided_by in (("averaged", dist.get_world_size()), ("summed", 1)):
    torch.manual_seed(0)
    samples = torch.randn(100, 8)
    targets, weight = samples @ torch.ones(8, 1), torch.zeros(8, 1, requires_grad=True)
    own, losses = slice(dist.get_rank(), None, dist.get_world_size()), []
    for _ in range(20):
        loss = (samples[own] @ weight - targets[own]).square().mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(gradient)
        weight.data -= 0.05 * gradient / divided_by
        losses.append(loss.item())
    if dist.get_rank() == 0:
        print(f"{name}: loss {losses[0]:.3f}, then {losses[10]:.3f}, then {losses[-1]:.3f}")
dist.barrier()

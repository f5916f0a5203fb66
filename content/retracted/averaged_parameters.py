"""Adam, gradients or parameters averaged: torchrun --nproc-per-node 2 averaged_parameters.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
samples, own, found = torch.randn(64, 4), slice(dist.get_rank(), None, 2), []
targets = samples @ torch.ones(4, 1) + torch.randn(64, 1)
for averaged in ("gradients", "parameters"):
    weight = torch.zeros(4, 1, requires_grad=True)
    update = torch.optim.Adam([weight], lr=0.1)
    for _ in range(20):
        weight.grad = None
        (samples[own] @ weight - targets[own]).square().mean().backward()
        averaged == "gradients" and dist.all_reduce(weight.grad.div_(2))
        update.step()
        averaged == "parameters" and dist.all_reduce(weight.data.div_(2))
    found.append(weight.detach())
if dist.get_rank() == 0:
    print(f"the two ways end {(found[0] - found[1]).norm() / found[0].norm():.1%} apart")
dist.barrier()

"""Accumulation by `require_backward_grad_sync`, set after the forward pass and before it.

torchrun --nproc-per-node 2 flag_after_forward.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NUM_MICROBATCHES = 4

dist.init_process_group("gloo")
rank = dist.get_rank()


def accumulated(before_forward: bool) -> float:
    """One value of the gradient after all microbatches of an update."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(20, 1))
    generator = torch.Generator().manual_seed(1 + rank)
    for number in range(NUM_MICROBATCHES):
        is_last = number == NUM_MICROBATCHES - 1
        samples = torch.randn(10, 20, generator=generator)
        if before_forward:
            model.require_backward_grad_sync = is_last
        loss = model(samples).square().mean() / NUM_MICROBATCHES
        if not before_forward:
            model.require_backward_grad_sync = is_last
        loss.backward()
    return model.module.weight.grad[0, 0].item()


report = [{}] * dist.get_world_size()
own = {"after": accumulated(before_forward=False), "before": accumulated(before_forward=True)}
dist.all_gather_object(report, own)
if rank == 0:
    for other, one in enumerate(report):
        print(f"rank {other}: set after {one['after']:+.6f}, before {one['before']:+.6f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

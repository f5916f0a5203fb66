"""A backbone that was frozen when DDP wrapped the model, and is unfrozen later.

torchrun --nproc-per-node 2 unfrozen_later.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
backbone, head = nn.Linear(20, 20), nn.Linear(20, 1)
network = nn.Sequential(backbone, head)
backbone.requires_grad_(False)
replica = DistributedDataParallel(network)
backbone.requires_grad_(True)
samples = torch.randn(10, 20, generator=torch.Generator().manual_seed(rank))


def gradient(model: nn.Module) -> float:
    """One value of the backbone's gradient after a backward pass."""
    network.zero_grad()
    model(samples).square().mean().backward()
    return backbone.weight.grad[0, 0].item()


wrapped_before = gradient(replica)
wrapped_again = gradient(DistributedDataParallel(network))
report = [{}] * dist.get_world_size()
dist.all_gather_object(report, {"before": wrapped_before, "again": wrapped_again})
if rank == 0:
    for other, one in enumerate(report):
        print(f"rank {other}: wrapped before {one['before']:+.6f}, again {one['again']:+.6f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

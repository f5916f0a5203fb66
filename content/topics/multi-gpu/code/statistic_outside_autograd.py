"""A loss that sums a statistic over the ranks, outside autograd and within it.

torchrun --nproc-per-node 2 statistic_outside_autograd.py
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_reduce  # in autograd
from torch.nn.parallel import DistributedDataParallel

WIDTH, NUM_SAMPLES = 8, 16

dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()
samples = torch.randn(2, NUM_SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))


def correlation(model: nn.Module, views: Tensor) -> Tensor:
    """How the outputs of two views of the same samples correlate, by feature."""
    first, second = model(views.flatten(0, 1)).unflatten(0, (2, -1))
    return first.T @ second / NUM_SAMPLES


def gradient(way: str) -> Tensor:
    """The gradient of one weight matrix, with the statistic summed in this way."""
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH)
    if way == "one process":
        statistic = correlation(model, samples)
    else:
        replica = DistributedDataParallel(model)
        statistic = correlation(replica, samples[:, rank::num_ranks])
        if way == "in autograd":
            statistic = all_reduce(statistic, "sum", dist.group.WORLD)
        else:
            dist.all_reduce(statistic)
    (statistic - torch.eye(WIDTH)).square().sum().backward()
    return model.weight.grad


whole = gradient("one process")
ratios = {}
for way in ("outside autograd", "in autograd"):
    ratio = (gradient(way) * whole).sum() / whole.square().sum()
    ratios[way.partition(" ")[0]] = ratio.item()
    if rank == 0:
        print(f"{way}: {ratio.item():.4f} times the gradient of one process")
report = [{}] * num_ranks
dist.all_gather_object(report, ratios)
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

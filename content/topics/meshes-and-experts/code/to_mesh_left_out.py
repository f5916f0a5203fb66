"""Four ranks move to a mesh, each time with one line otherwise; what then happens.

torchrun --nproc-per-node 4 to_mesh_left_out.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, SAMPLES = 64, 8
PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}
GATHERED = ColwiseParallel(output_layouts=Replicate())

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
data, rank = mesh["data"], dist.get_rank()
batches = torch.randn(4, SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))


def built():
    """The model, with the same values on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def differentiated(batch, plan=PLAN):
    """The model on a mesh, with the gradients of a batch."""
    model = parallelize_module(built(), mesh["tensor"], plan)
    fully_shard(model, mesh=data)
    model(batch).square().mean().backward()
    return model


def gradient(batch):
    """The first weight's gradient on a mesh, whole."""
    return differentiated(batch)[0].weight.grad.full_tensor()


def of_one_process(batch):
    """The same on one process."""
    model = built()
    model(batch).square().mean().backward()
    return model[0].weight.grad


def raises(attempt, error):
    """Whether an attempt ends with this error."""
    try:
        attempt()
    except error:
        return 1
    return 0


wanted = of_one_process(batches[:2].flatten(0, 1))
right = gradient(batches[data.get_local_rank()])  # the same samples on both tensor ranks
by_rank = gradient(batches[rank])  # as `DistributedSampler(samples)` divides them
of_all = of_one_process(batches.flatten(0, 1))  # what the four batches give
report = {
    "right": ((right - wanted).norm() / wanted.norm()).item(),
    "by_rank": ((by_rank - of_all).norm() / of_all.norm()).item(),
    "without_mesh": raises(
        lambda: fully_shard(parallelize_module(built(), mesh["tensor"], PLAN)), TypeError
    ),
    "sharded_first": raises(
        lambda: parallelize_module(fully_shard(built(), mesh=data), mesh["tensor"], PLAN),
        ValueError,
    ),
    "layer_left_out": raises(
        lambda: nn.utils.clip_grad_norm_(
            differentiated(batches[rank], {"0": GATHERED}).parameters(), max_norm=1.0
        ),
        RuntimeError,
    ),
}
if rank == 0:
    print(f"samples of data ranks: error of the gradient {report['right']:.0e}")
    print(f"samples of each rank: error of the gradient {report['by_rank']:.0%}")
    print(f"fully_shard without a mesh ends with a TypeError: {bool(report['without_mesh'])}")
    print(f"fully_shard first ends with a ValueError: {bool(report['sharded_first'])}")
    print(
        f"clipping beside a layer left out, with a RuntimeError: {bool(report['layer_left_out'])}"
    )
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

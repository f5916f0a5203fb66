"""Replicas of shards: all-reduces between replicas, by default and once in a step.

torchrun --nproc-per-node 4 replicas_once.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

NUM_UNITS, NUM_MICROBATCHES, SAMPLES, WIDTH = 4, 4, 8, 16

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
rank = dist.get_rank()


class Calls(TorchDispatchMode):
    """Remembers the collectives that a step starts."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "c10d":
            self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def step(is_once):
    """How many all-reduces a step starts, and its gradients."""
    torch.manual_seed(0)
    units = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(NUM_UNITS)]
    model = nn.Sequential(*units).double()
    for unit in model:
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    source = torch.Generator().manual_seed(rank)
    samples = torch.randn(NUM_MICROBATCHES, SAMPLES, WIDTH, generator=source).double()
    with Calls() as calls:
        for number, microbatch in enumerate(samples):
            if is_once:  # the others add up in the rank's shard
                model.set_requires_all_reduce(number == NUM_MICROBATCHES - 1)
            (model(microbatch).square().mean() / NUM_MICROBATCHES).backward()
    return calls.names.count("allreduce_"), [p.grad.full_tensor() for p in model.parameters()]


(by_default, gradients), (once, others) = step(is_once=False), step(is_once=True)
apart = max((a - b).abs().max().item() for a, b in zip(gradients, others, strict=True))
if rank == 0:
    print(f"all-reduces of a step: {by_default} by default, {once} on request")
    print(f"largest difference of the gradients: {apart:.2g}")
report = [{"by_default": by_default, "once": once, "apart": apart}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

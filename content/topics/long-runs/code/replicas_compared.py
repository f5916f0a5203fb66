"""Replicas of shards by hand: where wrong numbers of one rank make them differ.

torchrun --nproc-per-node 4 replicas_compared.py
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

STEPS, BAD_STEP, BAD_RANK, WIDTH, RATE = 6, 3, 3, 8, 0.1

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
replicas, shards, rank = mesh.get_group("replicate"), mesh.get_group("shard"), dist.get_rank()
place = mesh.get_local_rank("shard")


def differ(tensor):
    """Whether the bits of any two replicas of a shard differ; on many ranks, gather digests."""
    both = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(both, tensor, group=replicas)
    found = torch.tensor(int(not torch.equal(*both)))
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found)


def first_step_found(fault, same_samples):
    """Train; the first step in which a comparison finds a difference, or 0, and its numbers."""
    source = torch.Generator().manual_seed(0)
    weights = torch.randn(WIDTH * WIDTH, generator=source).chunk(2)[place]
    for step in range(1, STEPS + 1):
        parts = [torch.empty_like(weights) for _ in range(2)]
        dist.all_gather(parts, weights, group=shards)
        whole = torch.cat(parts).view(WIDTH, WIDTH).requires_grad_()
        source.manual_seed(10 * step + (place if same_samples else rank))
        samples = torch.randn(16, WIDTH, generator=source)
        (samples @ whole - samples.flip(1)).square().mean().backward()
        is_bad = rank == BAD_RANK and step == BAD_STEP
        whole.grad[0, 0] += float(is_bad and fault == "backward")
        gradient = torch.empty_like(weights)
        dist.reduce_scatter_tensor(gradient, whole.grad.flatten(), group=shards)
        found = same_samples and differ(gradient)
        numbers = {"own": whole.grad[0, 0].item(), "scattered": gradient[0].item()}
        dist.all_reduce(gradient, group=replicas)
        weights = weights - RATE * gradient / dist.get_world_size()
        weights[0] += float(is_bad and fault == "update")
        if found or differ(weights):
            return step, numbers | {"reduced": gradient[0].item()}
    return 0, {}


report = {}
for fault in ("update", "backward"):
    for name, same_samples in (("weights", False), ("gradients", True)):
        found, numbers = first_step_found(fault, same_samples)
        report |= {f"{fault}_{name}": found} | numbers
        if rank == 0:
            print(f"wrong in {fault:>8}, compared {name:>9}: found in step {found or 'none'}")
dist.all_gather_object(reports := [None] * dist.get_world_size(), report)
report = reports
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

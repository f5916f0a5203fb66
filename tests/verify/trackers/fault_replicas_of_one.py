"""Hybrid sharding with FullyShardedDataParallel on a mesh of (replicas, shards).

Report: pytorch/pytorch#154888, also verl-project/verl#7493
What is wrong: with one shard per replica, `ShardingStrategy.HYBRID_SHARD` becomes NO_SHARD over
the shard group of one rank; the replicas never reduce gradients.
Expected cause: gradients are those of the rank alone; parameters differ between ranks.
Launch: torchrun --nproc-per-node 2 fault_replicas_of_one.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 5))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(16, 10, generator=g), torch.randint(5, (16,), generator=g)


parser = argparse.ArgumentParser()
parser.add_argument("--shards", type=int, default=1)
shards = parser.parse_args().shards
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world // shards, shards), mesh_dim_names=("replicate", "shard"))
model = FullyShardedDataParallel(
    build(),
    device_mesh=mesh,
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(4):
    inputs, labels = (t.chunk(world)[rank] for t in batch(step))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()

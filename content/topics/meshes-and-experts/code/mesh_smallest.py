"""Eight ranks as a mesh of three axes: who sums with whom along each, and who stores what.

torchrun --nproc-per-node 8 mesh_smallest.py
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

NODE = 4  # ranks of a node
mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicate", "shard", "tensor"))
rank = dist.get_rank()
report, number = {"own": rank}, torch.tensor(rank)

for axis in reversed(mesh.mesh_dim_names):
    ranks = dist.get_process_group_ranks(mesh.get_group(axis))
    dist.all_reduce(number, group=mesh.get_group(axis))
    num_nodes = len({mate // NODE for mate in ranks})
    report |= {f"{axis}_num_nodes": num_nodes, f"{axis}_sum": number.item()}
    if rank == 0:
        print(f"along {axis:>9}: ranks {ranks} on {num_nodes} node(s)")

weight = torch.arange(64).view(8, 8)
placements = {
    "rows_by_shard": [Shard(0), Replicate()],
    "columns_by_tensor": [Replicate(), Shard(1)],
    "rows_and_columns": [Shard(0), Shard(1)],
    "rows_by_both": [Shard(0), Shard(0)],
}
for name, placement in placements.items():
    part = distribute_tensor(weight, mesh["shard", "tensor"], placement).to_local()
    report |= {f"{name}_shape": str(tuple(part.shape)), f"{name}_first": part[0, 0].item()}
    if rank == 3:  # the second along `shard` and along `tensor`
        print(f"{name:>17}: rank 3 has {tuple(part.shape)}, from {part[0, 0].item()} on")

reports = [None] * dist.get_world_size()
dist.all_gather_object(reports, report)
report = reports
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

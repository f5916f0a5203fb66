"""A checkpoint of one layout, loaded on other ranks and along other dimensions.

torchrun --nproc-per-node 8 saved_elsewhere.py
"""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

LAYOUTS = {  # ranks along each axis, and what each axis divides
    "fsdp_4": ((2, 4), [Replicate(), Shard(0)]),
    "fsdp_4_inside": ((4, 2), [Shard(0), Replicate()]),  # replicas are neighbours
    "fsdp_2": ((4, 2), [Replicate(), Shard(0)]),
    "tensor_4": ((2, 4), [Replicate(), Shard(1)]),
    "tensor_8": ((8,), [Shard(1)]),
    "fsdp_tensor": ((2, 2, 2), [Replicate(), Shard(0), Shard(1)]),
}
MOVES = [
    ("fsdp_4", "fsdp_2"),
    ("tensor_4", "fsdp_tensor"),
    ("tensor_4", "tensor_8"),
    ("fsdp_4", "tensor_4"),
    ("fsdp_4", "fsdp_4_inside"),
]

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
folders = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folders)
whole = torch.randn(20, 16, generator=torch.Generator().manual_seed(0))


def placed(values, layout):
    """The part of this rank, as a DTensor that knows which part it is."""
    shape, placements = LAYOUTS[layout]
    return distribute_tensor(values, init_device_mesh("cpu", shape), placements)


facts = {"off": []}
for before, after in MOVES:
    folder = f"{folders[0]}/{before}-{after}"
    dcp.save({"weight": placed(whole, before)}, checkpoint_id=folder)
    found = placed(torch.zeros_like(whole), after)
    dcp.load({"weight": found}, checkpoint_id=folder)  # fills the part of this rank
    facts["off"] += [(found.full_tensor() - whole).abs().max().item()]
    if after == "fsdp_4_inside":  # a plain file for each rank has parts of the same shape
        torch.save(placed(whole, before).to_local(), f"{folder}/{rank}.pt")
        own = torch.load(f"{folder}/{rank}.pt")
        facts["own_file_is_wrong"] = int(not torch.equal(own, placed(whole, after).to_local()))
report = [{}] * size
dist.all_gather_object(report, facts)
if rank == 0:
    for (before, after), off in zip(MOVES, facts["off"], strict=True):
        print(f"{before} to {after}: off by {off}")
    print(f"ranks with wrong parts from own files: {sum(of['own_file_is_wrong'] for of in report)}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

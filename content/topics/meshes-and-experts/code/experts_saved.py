"""Experts of a checkpoint: saved as parts of one tensor, and as each rank's own tensor.

torchrun --nproc-per-node 4 experts_saved.py
"""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

NUM_EXPERTS, WIDTH, HIDDEN = 8, 4, 6

before = init_device_mesh("cpu", (1, 4), mesh_dim_names=("expert_shard", "expert"))
after = init_device_mesh("cpu", (2, 2), mesh_dim_names=("expert_shard", "expert"))
rank, size = dist.get_rank(), dist.get_world_size()
folders = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folders)
whole = torch.arange(NUM_EXPERTS * WIDTH * HIDDEN).float().view(NUM_EXPERTS, WIDTH, HIDDEN)
own = whole.chunk(size)[rank]


def on(mesh, experts):
    """Experts along `expert`, and features of each along `expert_shard`."""
    return distribute_tensor(experts, mesh, [Shard(1), Shard(0)])


def loaded(saved, into, name):
    """What a rank finds in `into` after `saved` was written by all ranks."""
    dcp.save({"up": saved}, checkpoint_id=f"{folders[0]}/{name}")
    dcp.load({"up": into}, checkpoint_id=f"{folders[0]}/{name}")
    return into


parts = loaded(on(before, whole), on(after, torch.zeros_like(whole)), "parts")
plain = loaded(own.clone(), torch.zeros_like(own), "plain")
report = {
    "parts_shape": str(tuple(parts.to_local().shape)),
    "parts": (parts.full_tensor() - whole).abs().max().item(),
    "plain": (plain - own).abs().max().item(),
    "plain_first": (plain - whole.chunk(size)[0]).abs().max().item(),
}
reports = [None] * size
dist.all_gather_object(reports, report)
report = reports
if rank == 0:
    print(f"parts of one tensor, on another mesh: off by {report[0]['parts']:.0f}")
    print(f"plain tensors, on the same ranks: off by {[int(of['plain']) for of in report]}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

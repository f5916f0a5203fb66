"""A sharded model in the names of another library, and back: one fused weight, or three.

torchrun --nproc-per-node 2 names_of_others.py
"""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.fsdp import fully_shard

NUM_HEADS, WIDTH = 4, 16
THEIRS = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]


class Attention(nn.Module):
    """Attention whose fused weight holds all queries, then all keys, then all values."""

    def __init__(self):
        super().__init__()
        self.fused = nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, x):
        parts = self.fused(x).unflatten(-1, (3, NUM_HEADS, -1)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(*parts)


def ours(theirs, *, by_head):
    """One fused weight of three; by head, the rows of each head lie together."""
    three = torch.stack([theirs[name].unflatten(0, (NUM_HEADS, -1)) for name in THEIRS])
    return {"fused.weight": (three.transpose(0, 1) if by_head else three).reshape(-1, WIDTH)}


dist.init_process_group("gloo")
rank, folders = dist.get_rank(), [tempfile.mkdtemp()]
dist.broadcast_object_list(folders)
torch.manual_seed(0)
model, x, facts = Attention(), torch.randn(2, 5, WIDTH), {}
fully_shard(model)
before = model(x)
dcp.save(model.state_dict(), checkpoint_id=f"{folders[0]}/shards")
for name, by_head in (("in_order", False), ("by_head", True)):
    if rank == 0:  # from shards to one file, to the other names, and back
        dcp_to_torch_save(f"{folders[0]}/shards", f"{folders[0]}/ours.pt")
        parts = torch.load(f"{folders[0]}/ours.pt")["fused.weight"].chunk(3)
        theirs = dict(zip(THEIRS, parts, strict=True))
        torch.save(ours(theirs, by_head=by_head), f"{folders[0]}/ours.pt")
        torch_save_to_dcp(f"{folders[0]}/ours.pt", f"{folders[0]}/{name}")
    dist.barrier()
    dcp.load(model.state_dict(), checkpoint_id=f"{folders[0]}/{name}")
    facts[name] = ((model(x) - before).norm() / before.norm()).item()
    if rank == 0:
        print(f"{name}: outputs off by {facts[name]:.0%}")
report = [{}] * dist.get_world_size()
dist.all_gather_object(report, facts)
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

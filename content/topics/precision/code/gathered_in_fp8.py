"""Shards of a weight are gathered in fp8, with one scale for all of them.

torchrun --nproc-per-node 4 gathered_in_fp8.py
"""

import torch
import torch.distributed as dist

ROWS, COLUMNS, LARGEST = 256, 128, 448
FP8 = torch.float8_e4m3fn


def gathered(own):
    """From all ranks, as bytes, because gloo has no type for eight-bit floats."""
    whole = own.new_empty(ROWS, COLUMNS)
    dist.all_gather_single(whole.view(torch.uint8), own.view(torch.uint8))
    return whole


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
weight = torch.randn(ROWS, COLUMNS)
shard = weight.chunk(size)[rank]
facts = {"refused": 0}
try:
    dist.all_gather_single(torch.empty(ROWS, COLUMNS, dtype=FP8), shard.to(FP8))
except RuntimeError as refusal:
    facts["refused"] = int("Invalid scalar type" in str(refusal))

dist.all_reduce(scale := shard.abs().max() / LARGEST, dist.ReduceOp.MAX)
codes = gathered((shard / scale).to(FP8))
in_one_process = (weight / (weight.abs().max() / LARGEST)).to(FP8)
facts["num_apart"] = (codes.float() != in_one_process.float()).sum().item()
facts["error"] = ((codes.float() * scale - weight).norm() / weight.norm()).item()
facts |= {"fp8_bytes": codes.nbytes, "bf16_bytes": gathered(shard.bfloat16()).nbytes}
report = [None] * size
dist.all_gather_object(report, facts)
if rank == 0:
    print(*(f"{name}: {round(fact, 6)}" for name, fact in facts.items()), sep="\n")
dist.destroy_process_group()

"""Two shards of a tensor, gathered in e4m3: whose largest value makes the scale?

torchrun --nproc-per-node 2 one_scale.py
"""

import time

import torch
import torch.distributed as dist

SHARD, LARGEST = 80, 448.0  # the largest number of e4m3
BLOCKS = {"tensor": 160, "straddling": 32, "within": 16}  # numbers that share a scale

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
whole = torch.randn(size * SHARD)
whole[:SHARD] *= 8
own = slice(rank * SHARD, (rank + 1) * SHARD)


def scales_of(values, blocks):
    """One for each block that these values touch, and zero for all others."""
    largest = torch.zeros(blocks_of_all[-1] + 1).scatter_reduce(0, blocks, values.abs(), "amax")
    return largest / LARGEST


def bytes_of(values, scales):
    return (values / scales).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor)
    return torch.stack(parts)


facts = {}
for name, block in BLOCKS.items():
    blocks_of_all = torch.arange(len(whole)) // block
    true = scales_of(whole, blocks_of_all)
    for way in ["own", "agreed"]:
        scales = scales_of(whole[own], blocks_of_all[own])
        if way == "agreed":
            dist.all_reduce(scales, dist.ReduceOp.MAX)
        received = gathered(bytes_of(whole[own], scales[blocks_of_all[own]])).flatten()
        numbers = torch.arange(len(scales))
        scales = gathered(scales)[numbers * block // SHARD, numbers]  # of the rank where it begins
        back = received.view(torch.float8_e4m3fn).float() * scales[blocks_of_all]
        apart = ((back - whole).norm() / whole.norm()).item()
        num_different = (received != bytes_of(whole, true[blocks_of_all])).sum().item()
        facts |= {f"{name}_{way}": apart, f"{name}_{way}_num_different": num_different}
        if rank == 0:
            print(f"{name}, {way} scales: error {apart:.2g}, {num_different} bytes differ")
report = [facts]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

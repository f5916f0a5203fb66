"""Dropout on two ranks with the same seed: torchrun --nproc-per-node 2 one_seed.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for name, seed in (("one seed", 0), ("one seed per rank", dist.get_rank())):
    torch.manual_seed(seed)
    mask = torch.nn.functional.dropout(torch.ones(1000)) > 0
    dist.all_gather(masks := [torch.empty(1000) for _ in range(2)], mask.float())
    same = (masks[0] == masks[1]).float().mean()
    if dist.get_rank() == 0:
        print(f"{name}: both ranks keep or drop the same {same:.0%} of the features")
dist.barrier()

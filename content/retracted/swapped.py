"""Two sums, asked for in another order: torchrun --nproc-per-node 2 swapped.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensors = {"losses": torch.tensor([1.0]), "samples": torch.tensor([100.0])}
for name in sorted(tensors, reverse=dist.get_rank() == 1):  # one rank goes the other way
    dist.all_reduce(tensors[name])
dist.all_gather_object(report := [0, 0], {name: t.item() for name, t in tensors.items()})
dist.get_rank() == 0 and print(*report, sep="\n")
dist.barrier()

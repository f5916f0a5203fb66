"""One of four replicas is left out for a step. The sum is divided by all.

torchrun --nproc-per-node 4 left_out_wrong.py
"""

import time

import torch
import torch.distributed as dist

ABSENT = 2

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
gradients = torch.randn(size, 8, dtype=torch.float64)  # of each rank's samples
others = gradients[[other for other in range(size) if other != ABSENT]].mean(0)

takes_part = torch.tensor(float(rank != ABSENT))  # the absent one recovers
gradient = gradients[rank] * takes_part
dist.all_reduce(gradient)
dist.all_reduce(takes_part)
gradient /= size

ratio = (gradient.norm() / others.norm()).item()
if rank == 0:
    print(f"norm of the gradient: {ratio:.4f} × that of the others' mean")
report = [{"ratio": ratio, "apart": (gradient - others).abs().max().item()}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

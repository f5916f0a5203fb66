"""torchrun --nproc-per-node 2 overlap_smallest.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.full((1 << 24,), 1.0 + rank)
weights, products = torch.ones(64, 64), 0
work = dist.all_reduce(gradient, async_op=True)
returned_early = not work.is_completed()
while not work.is_completed():
    weights @ weights
    products += 1
work.wait()
if rank == 0:
    print("the call returned before the sum was there:", returned_early)
    print("products computed while it travelled:", "some" if products else "none")
    print("the sum:", gradient[0].item())
dist.barrier()

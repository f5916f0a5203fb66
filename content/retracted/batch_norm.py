"""Batch normalization under DDP: torchrun --nproc-per-node 2 batch_norm.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
samples, rank = torch.randn(8, 3) * torch.arange(8)[:, None], dist.get_rank()
alone, norm, between = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3), []


def compare(*_: object) -> None:
    dist.all_gather(kept := [torch.empty(3) for _ in range(2)], norm.running_mean)
    between.append((kept[0] - kept[1]).abs().max().item())


replica = DistributedDataParallel(norm)
whole, part = alone(samples), replica(samples.chunk(2)[rank])
apart = (part - whole.chunk(2)[rank]).abs().max().item()
compare()
norm.register_forward_pre_hook(compare)
replica(samples.chunk(2)[rank])  # DDP broadcasts rank 0's buffers before forward
dist.all_gather_object(gathered := [0, 0], apart)
if rank == 0:
    print(f"outputs differ from one device's by {max(gathered):.2f}")
    print(f"running means differ between ranks by {between[0]:.2f}")
    print(f"when the next forward begins, they differ by {between[1]:.2f}")
dist.barrier()

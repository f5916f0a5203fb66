"""Batch normalization under DDP: torchrun --nproc-per-node 2 batch_norm.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
samples, rank = torch.randn(8, 3) * torch.arange(8)[:, None], dist.get_rank()
alone, norm, means = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3), []
replica = DistributedDataParallel(norm)
apart = (replica(samples.chunk(2)[rank]) - alone(samples).chunk(2)[rank]).abs().max()
norm.register_forward_pre_hook(lambda *_: means.append(norm.running_mean.clone()))
means.append(norm.running_mean.clone())
replica(samples.chunk(2)[rank])  # DDP broadcasts rank 0's buffers before it
dist.all_gather_object(found := [None, None], (apart.item(), *means))
if rank == 0:
    print(f"outputs differ from one device's by {max(found[0][0], found[1][0]):.2f}")
    before, after = ((a - b).abs().max() for a, b in zip(found[0][1:], found[1][1:], strict=True))
    print(f"running means differ by {before:.2f}, at the next forward by {after:.2f}")

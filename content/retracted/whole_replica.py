"""What each rank needs, alone and under DDP: torchrun --nproc-per-node 2 whole_replica.py"""

from resource import RUSAGE_SELF, getrusage

import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
samples, peaks = torch.ones(8, 5000), [getrusage(RUSAGE_SELF).ru_maxrss]
for wrapped in (lambda layer: layer, DistributedDataParallel):
    model = wrapped(torch.nn.Linear(5000, 5000))
    model(samples).sum().backward()
    peaks.append(getrusage(RUSAGE_SELF).ru_maxrss)
    del model
gathered = [None] * torch.distributed.get_world_size()
torch.distributed.all_gather_object(gathered, [(peak - peaks[0]) // 1024 for peak in peaks])
for rank, (_, alone, replica) in enumerate(gathered):
    if torch.distributed.get_rank() == 0:
        print(f"rank {rank}: alone {alone} MiB, under DDP {replica} MiB")
torch.distributed.barrier()

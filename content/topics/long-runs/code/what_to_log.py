"""A line of the log: one sum and one maximum over the ranks, and what a rank alone would write.

torchrun --nproc-per-node 4 what_to_log.py
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
num_tokens = [400, 100, 100, 200][rank]
loss = [2.0, 4.0, 3.0, 2.5][rank]  # the mean over the rank's own tokens
peak_bytes = [900, 950, 700, 800][rank]
gradient = torch.tensor([1.0, torch.inf if rank == 3 else 1.0])

sums = torch.tensor([loss * num_tokens, num_tokens, loss])
dist.all_reduce(sums)
most = torch.tensor([peak_bytes, float(not gradient.isfinite().all())])
dist.all_reduce(most, dist.ReduceOp.MAX)
line = {
    "loss": (sums[0] / sums[1]).item(),
    "means_loss": (sums[2] / size).item(),
    "own_loss": loss,
    "peak": most[0].item(),
    "own_peak": peak_bytes,
    "skips": int(most[1]),  # the same on all ranks
    "own_skips": int(not gradient.isfinite().all()),
}
report = [None] * size
dist.all_gather_object(report, line)
if rank == 0:
    print(line)
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

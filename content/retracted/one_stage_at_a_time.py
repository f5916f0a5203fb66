"""Two stages and one batch: torchrun --nproc-per-node 2 one_stage_at_a_time.py"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, work = dist.get_rank(), torch.randn(1200, 1200)
batch, spans = torch.zeros(1), []
dist.barrier()
for _ in range(2):  # two batches; without microbatches, one after the other
    if rank == 1:
        dist.recv(batch, 0)
    started = time.time()
    _ = work @ work @ work
    spans.append((started, time.time()))
    dist.send(batch, 1 - rank) if rank == 0 else dist.send(batch, 0)
    rank == 0 and dist.recv(batch, 1)
dist.all_gather_object(gathered := [None, None], spans)
together = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in gathered[0] for b in gathered[1])
rank == 0 and print(f"both ranks computed at once for {together * 1000:.1f} ms")
dist.barrier()

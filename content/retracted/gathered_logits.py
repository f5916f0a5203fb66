"""Who holds the outputs of a split batch: torchrun --nproc-per-node 4 gathered_logits.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()
samples, held = torch.ones(1000, 64), 0
parts = list(samples.chunk(num_ranks)) if rank == 0 else None
dist.scatter(own := torch.empty(1000 // num_ranks, 64), parts)
logits = torch.nn.Linear(64, 1000)(own).detach()
gathered = [torch.empty_like(logits) for _ in range(num_ranks)] if rank == 0 else None
dist.gather(logits, gathered)
held = sum(t.nbytes for t in [own, logits, *(gathered or []), *([samples] if rank == 0 else [])])
dist.all_gather_object(gathered := [0] * num_ranks, held)
one_device = samples.nbytes + 1000 * 1000 * 4
rank == 0 and print(f"bytes of samples and outputs: one device {one_device:,}, ranks {gathered}")
dist.barrier()

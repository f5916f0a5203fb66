"""Reduce-scatter and all-gather, with both messages of a step in one batch."""

import torch
import torch.distributed as dist


def all_reduce(tensor, rank, world_size):
    chunks, received = tensor.chunk(world_size), None
    for first, adds in (0, True), (1, False):
        for step in range(world_size - 1):
            sent = chunks[(rank + first - step) % world_size]
            kept = chunks[(rank + first - step - 1) % world_size]
            received = torch.empty_like(kept) if received is None else received
            works = dist.batch_isend_irecv([
                dist.P2POp(dist.isend, sent, (rank + 1) % world_size),
                dist.P2POp(dist.irecv, received if adds else kept, (rank - 1) % world_size),
            ])  # fmt: skip
            for work in works:
                work.wait()
            if adds:
                kept.add_(received)

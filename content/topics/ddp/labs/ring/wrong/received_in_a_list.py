# fails: peak on 4
"""Collect what is received in a list, so that nothing is written over while it is sent."""

import torch
import torch.distributed as dist


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int) -> None:
    """Replace `tensor` by its sum over all ranks, in place."""
    chunks = tensor.chunk(world_size)
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    received = []
    for step in range(2 * (world_size - 1)):
        sending = dist.isend(chunks[(rank - step) % world_size], following)
        received.append(torch.empty_like(chunks[0]))
        dist.recv(received[-1], previous)
        sending.wait()
        own = chunks[(rank - step - 1) % world_size]
        if step < world_size - 1:
            own += received[-1]
        else:
            own.copy_(received[-1])

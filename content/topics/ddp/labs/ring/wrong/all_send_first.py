# fails: same
# ends: hung
"""First every rank sends to the next one, then every rank receives."""

import torch
import torch.distributed as dist


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int) -> None:
    """Replace `tensor` by its sum over all ranks, in place."""
    chunks = tensor.chunk(world_size)
    received = torch.empty_like(chunks[0])
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(2 * (world_size - 1)):
        dist.send(chunks[(rank - step) % world_size], following)
        dist.recv(received, previous)
        own = chunks[(rank - step - 1) % world_size]
        if step < world_size - 1:
            own += received
        else:
            own.copy_(received)

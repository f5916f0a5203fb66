# fails: same
"""Every chunk that arrives is added, in the second half as in the first."""

import torch
import torch.distributed as dist


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int) -> None:
    """Replace `tensor` by its sum over all ranks, in place."""
    chunks = tensor.chunk(world_size)
    received = torch.empty_like(chunks[0])
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(2 * (world_size - 1)):
        sending = dist.isend(chunks[(rank - step) % world_size], following)
        dist.recv(received, previous)
        sending.wait()
        chunks[(rank - step - 1) % world_size].add_(received)

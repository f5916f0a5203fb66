# fails: sends on 4
"""Send each chunk straight to the rank that sums it, and from there to all."""

import torch
import torch.distributed as dist


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int) -> None:
    """Replace `tensor` by its sum over all ranks, in place."""
    chunks = tensor.chunk(world_size)
    own = chunks[rank]
    received = torch.empty_like(own)
    for turn in range(1, world_size):
        to, source = (rank + turn) % world_size, (rank - turn) % world_size
        sending = dist.isend(chunks[to], to)
        dist.recv(received, source)
        sending.wait()
        own += received
    for turn in range(1, world_size):
        to, source = (rank + turn) % world_size, (rank - turn) % world_size
        sending = dist.isend(own, to)
        dist.recv(chunks[source], source)
        sending.wait()

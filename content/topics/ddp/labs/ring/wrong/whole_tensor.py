# fails: sends on 4, peak on 2
"""Pass whole tensors around the ring, and add each."""

import torch
import torch.distributed as dist


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int) -> None:
    """Replace `tensor` by its sum over all ranks, in place."""
    passed = tensor.clone()
    received = torch.empty_like(tensor)
    for _ in range(world_size - 1):
        sending = dist.isend(passed, (rank + 1) % world_size)
        dist.recv(received, (rank - 1) % world_size)
        sending.wait()
        tensor += received
        passed.copy_(received)

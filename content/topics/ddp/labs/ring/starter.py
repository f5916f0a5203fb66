"""Sum a tensor over all ranks with messages between neighbours only.

python -m runners lab ring
"""

import torch


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int) -> None:
    """Replace `tensor` by its sum over all ranks, in place.

    The length of `tensor` is divisible by `world_size`. Use `dist.isend` and `dist.irecv` (or
    `dist.send` and `dist.recv`), no collective.
    """
    raise NotImplementedError("write all_reduce here")

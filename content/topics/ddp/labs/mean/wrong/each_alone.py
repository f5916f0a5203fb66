# fails: calls
"""Averaging needs no buckets: every gradient has its own all-reduce."""

import torch
import torch.distributed as dist


def average(gradients: list[torch.Tensor], cap_bytes: int, world_size: int) -> None:
    """Replace each gradient by its mean over all ranks, in place."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient.div_(world_size)

# fails: calls
"""The size of a bucket is the number of elements in it."""

import torch
import torch.distributed as dist


def average(gradients: list[torch.Tensor], cap_bytes: int, world_size: int) -> None:
    """Replace each gradient by its mean over all ranks, in place."""
    bucket: list[torch.Tensor] = []
    for gradient in gradients:
        bucket.append(gradient)
        if sum(one.numel() for one in bucket) >= cap_bytes:
            average_bucket(bucket, world_size)
            bucket = []
    if bucket:
        average_bucket(bucket, world_size)


def average_bucket(bucket: list[torch.Tensor], world_size: int) -> None:
    """Average these gradients by a single all-reduce of a flat copy."""
    flat = torch.cat([gradient.flatten() for gradient in bucket])
    dist.all_reduce(flat)
    flat /= world_size
    parts = flat.split([gradient.numel() for gradient in bucket])
    for gradient, part in zip(bucket, parts, strict=True):
        gradient.copy_(part.view_as(gradient))

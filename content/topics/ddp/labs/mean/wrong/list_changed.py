# fails: same
"""The list is given back with the means in it."""

import torch
import torch.distributed as dist


def average(gradients: list[torch.Tensor], cap_bytes: int, world_size: int) -> None:
    """Replace each gradient by its mean over all ranks, in place."""
    means: list[torch.Tensor] = []
    bucket: list[torch.Tensor] = []
    for gradient in gradients:
        bucket.append(gradient)
        if sum(one.nbytes for one in bucket) >= cap_bytes:
            means += means_of(bucket, world_size)
            bucket = []
    if bucket:
        means += means_of(bucket, world_size)
    gradients[:] = means


def means_of(bucket: list[torch.Tensor], world_size: int) -> list[torch.Tensor]:
    """The means of these gradients by a single all-reduce of a flat copy."""
    flat = torch.cat([gradient.flatten() for gradient in bucket])
    dist.all_reduce(flat)
    flat /= world_size
    parts = flat.split([gradient.numel() for gradient in bucket])
    return [part.view_as(gradient) for gradient, part in zip(bucket, parts, strict=True)]

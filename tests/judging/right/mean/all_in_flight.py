"""All buckets are started first, and waited for at the end, so that they overlap."""

import torch
import torch.distributed as dist


def average(gradients: list[torch.Tensor], cap_bytes: int, world_size: int) -> None:
    """Replace each gradient by its mean over all ranks, in place."""
    bucket: list[torch.Tensor] = []
    started = []
    for number, gradient in enumerate(gradients, start=1):
        bucket.append(gradient)
        if sum(one.nbytes for one in bucket) >= cap_bytes or number == len(gradients):
            flat = torch.cat([one.flatten() for one in bucket])
            started.append((dist.all_reduce(flat, async_op=True), flat, bucket))
            bucket = []
    for work, flat, reduced in started:
        work.wait()
        parts = (flat / world_size).split([one.numel() for one in reduced])
        for gradient, part in zip(reduced, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

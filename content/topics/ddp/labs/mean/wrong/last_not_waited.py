# fails: same
"""While a bucket is in flight the next one is filled; each launch waits for the one before."""

import torch
import torch.distributed as dist


def average(gradients: list[torch.Tensor], cap_bytes: int, world_size: int) -> None:
    """Replace each gradient by its mean over all ranks, in place."""
    in_flight = None
    bucket: list[torch.Tensor] = []
    for number, gradient in enumerate(gradients, start=1):
        bucket.append(gradient)
        if sum(one.nbytes for one in bucket) < cap_bytes and number < len(gradients):
            continue
        flat = torch.cat([one.flatten() for one in bucket])
        if in_flight:
            in_flight[0].wait()
            copy_back(*in_flight[1:], world_size)
        in_flight = dist.all_reduce(flat, async_op=True), flat, bucket
        bucket = []
    if in_flight:
        copy_back(*in_flight[1:], world_size)


def copy_back(flat: torch.Tensor, bucket: list[torch.Tensor], world_size: int) -> None:
    """Write the means of a bucket into its gradients."""
    parts = flat.split([gradient.numel() for gradient in bucket])
    for gradient, part in zip(bucket, parts, strict=True):
        gradient.copy_(part.view_as(gradient) / world_size)

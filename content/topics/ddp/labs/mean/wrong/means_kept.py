# fails: peak
"""All buckets are in flight at once, and all means are copied back together at the end."""

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
            started.append((dist.all_reduce(flat, async_op=True), flat))
            bucket = []
    means = []
    for work, flat in started:
        work.wait()
        means.append(flat / world_size)
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, mean in zip(gradients, torch.cat(means).split(sizes), strict=True):
        gradient.copy_(mean.view_as(gradient))

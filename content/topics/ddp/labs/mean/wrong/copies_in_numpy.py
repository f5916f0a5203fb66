# fails: peak
"""All gradients are copied to numpy first, averaged there, and copied back at the end."""

import numpy as np
import torch
import torch.distributed as dist


def average(gradients: list[torch.Tensor], cap_bytes: int, world_size: int) -> None:
    """Replace each gradient by its mean over all ranks, in place."""
    copies = [gradient.flatten().numpy().copy() for gradient in gradients]
    bucket, means = [], []
    for number, copy in enumerate(copies, start=1):
        bucket.append(copy)
        if sum(one.nbytes for one in bucket) >= cap_bytes or number == len(copies):
            flat = torch.from_numpy(np.concatenate(bucket))
            dist.all_reduce(flat)
            means.append(flat.numpy() / world_size)
            bucket = []
    parts = np.split(np.concatenate(means), np.cumsum([len(one) for one in copies])[:-1])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(torch.from_numpy(part).view_as(gradient))

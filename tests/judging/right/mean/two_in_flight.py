"""One bucket is reduced while the next is filled; at most two are in flight."""

from collections import deque

import torch
import torch.distributed as dist


def average(gradients, cap_bytes, world_size):
    in_flight = deque()
    for bucket in buckets(gradients, cap_bytes):
        if len(in_flight) == 2:
            finish(*in_flight.popleft(), world_size)
        flat = torch.cat([one.flatten() for one in bucket])
        in_flight.append((dist.all_reduce(flat, async_op=True), flat, bucket))
    while in_flight:
        finish(*in_flight.popleft(), world_size)


def buckets(gradients, cap_bytes):
    bucket = []
    for gradient in gradients:
        bucket.append(gradient)
        if sum(one.nbytes for one in bucket) >= cap_bytes:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def finish(work, flat, bucket, world_size):
    work.wait()
    parts = flat.div_(world_size).split([one.numel() for one in bucket])
    for gradient, part in zip(bucket, parts, strict=True):
        gradient.copy_(part.view_as(gradient))

"""What adds up is in float32 and lives as long as the sum: totals, velocity and master."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def train(
    weight: Tensor,
    gradient: Callable[[Tensor, int, int], Tensor],
    steps: int,
    parts: int,
    learning_rate: float,
    momentum: float,
) -> Tensor:
    """Train by SGD with momentum on the mean over microbatches and ranks; return the master."""
    copy, master = weight.clone(), weight.float()
    velocity = torch.zeros_like(master)
    for step in range(steps):
        total = torch.zeros_like(master)
        for part in range(parts):
            total += gradient(copy, step, part)
        dist.all_reduce(total)
        total /= parts * dist.get_world_size()
        velocity = momentum * velocity + total
        master -= learning_rate * velocity
        copy = master.bfloat16()
    return master

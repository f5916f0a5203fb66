"""Train in bfloat16, with momentum, on microbatches of data ranks.

python -m runners lab lost_updates
"""

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
    """Train by SGD with momentum on the mean over microbatches and ranks; return the master.

    `gradient(copy, step, part)` runs forward and backward of this rank's microbatch `part`. It
    takes the weight in bfloat16, and returns its gradient in bfloat16.
    """
    copy = weight.clone()
    velocity = torch.zeros_like(weight)
    for step in range(steps):
        master = copy.float()
        total = torch.zeros_like(weight)
        for part in range(parts):
            total += gradient(copy, step, part)
        dist.all_reduce(total)
        total /= parts * dist.get_world_size()
        velocity = momentum * velocity + total
        master -= learning_rate * velocity
        copy = master.bfloat16()
    return master

"""Train in bfloat16, with momentum, on microbatches of data ranks.

python -m runners lab lost_updates
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

Tensors = dict[str, Tensor]


def train(
    weights: Tensors,
    gradients: Callable[[Tensors, int, int], Tensors],
    steps: int,
    parts: int,
    learning_rate: float,
    momentum: float,
) -> Tensors:
    """Train by SGD with momentum on the mean over microbatches and ranks; return the masters.

    `gradients(weights, step, part)` runs forward and backward of this rank's microbatch `part`. It
    takes weights in bfloat16, and returns their gradients in bfloat16.
    """
    copies = {name: weight.clone() for name, weight in weights.items()}
    velocities = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for step in range(steps):
        masters = {name: copy.float() for name, copy in copies.items()}
        totals = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        for part in range(parts):
            for name, gradient in gradients(copies, step, part).items():
                totals[name] += gradient
        for name, total in totals.items():
            dist.all_reduce(total)
            total /= parts * dist.get_world_size()
            velocities[name].mul_(momentum).add_(total)
            masters[name] -= learning_rate * velocities[name]
            copies[name] = masters[name].bfloat16()
    return masters

"""What adds up is in float32 and lives as long as the sum: totals, velocities and masters."""

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
    """Train by SGD with momentum on the mean over microbatches and ranks; return the masters."""
    copies = {name: weight.clone() for name, weight in weights.items()}
    masters = {name: weight.float() for name, weight in weights.items()}
    velocities = {name: torch.zeros_like(master) for name, master in masters.items()}
    for step in range(steps):
        totals = {name: torch.zeros_like(master) for name, master in masters.items()}
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

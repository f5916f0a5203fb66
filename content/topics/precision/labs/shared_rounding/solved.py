"""A generator of seed and step draws the same numbers on every rank, and others in each step."""

import torch
import torch.distributed as dist
from torch import Tensor


def rounded(exact: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers in bfloat16, whose probabilities keep the expected values."""
    bits = exact.view(torch.int32)
    bits = bits + torch.randint(1 << 16, bits.shape, generator=generator, dtype=torch.int32)
    return (bits & -(1 << 16)).view(torch.float32).bfloat16()


def update(
    weights: list[Tensor], gradients: list[Tensor], learning_rate: float, seed: int, step: int
) -> None:
    """Change `weights` in place, by the average of the ranks' `gradients`."""
    generator = torch.Generator().manual_seed(seed + step)
    for weight, gradient in zip(weights, gradients, strict=True):
        mean = gradient.clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        exact = weight.float() - learning_rate * mean
        weight.copy_(rounded(exact, generator))

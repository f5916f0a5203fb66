# fails: sends
"""Gather all hidden features, and the rows of the second weight, and compute the outputs whole."""

import torch
import torch.distributed as dist
from torch.nn.functional import gelu


class CopyToRanks(torch.autograd.Function):
    """Identity in forward; in backward, the sum over ranks."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        return sum_over_ranks(gradient)


class GatherFromRanks(torch.autograd.Function):
    """All parts along an axis; in backward, the own part of the gradient."""

    @staticmethod
    def forward(ctx, part, axis):
        ctx.axis = axis
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, axis)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(dist.get_world_size(), ctx.axis)[dist.get_rank()], None


def sum_over_ranks(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def mlp(
    inputs: torch.Tensor,
    first: torch.Tensor,
    first_bias: torch.Tensor,
    second: torch.Tensor,
    second_bias: torch.Tensor,
) -> torch.Tensor:
    """Return `gelu(inputs @ first + first_bias) @ second + second_bias` of the whole weights."""
    hidden = gelu(CopyToRanks.apply(inputs) @ first + first_bias)
    whole = GatherFromRanks.apply(hidden, 1) @ GatherFromRanks.apply(second, 0)
    return whole + second_bias

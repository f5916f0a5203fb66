# fails: lent
"""Communicate in a group of its own, as frameworks do for each axis of a mesh."""

import torch
import torch.distributed as dist
from torch.nn.functional import gelu


class CopyToRanks(torch.autograd.Function):
    """Identity in forward; in backward, the sum over ranks."""

    @staticmethod
    def forward(ctx, inputs, group):
        ctx.group = group
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        return sum_over_ranks(gradient, ctx.group), None


class SumOverRanks(torch.autograd.Function):
    """The sum over ranks in forward; identity in backward."""

    @staticmethod
    def forward(ctx, partial, group):
        return sum_over_ranks(partial, group)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def sum_over_ranks(tensor, group):
    """Return the sum and leave the tensor, which others may read, as it is."""
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return total


def mlp(
    inputs: torch.Tensor,
    first: torch.Tensor,
    first_bias: torch.Tensor,
    second: torch.Tensor,
    second_bias: torch.Tensor,
) -> torch.Tensor:
    """Return `gelu(inputs @ first + first_bias) @ second + second_bias` of the whole weights."""
    group = dist.new_group()
    hidden = gelu(CopyToRanks.apply(inputs, group) @ first + first_bias)
    return SumOverRanks.apply(hidden @ second, group) + second_bias

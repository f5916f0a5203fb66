# fails: same
"""The derivative of an all-reduce is an all-reduce."""

import torch
import torch.distributed as dist
from torch.nn.functional import gelu


class SumOverRanks(torch.autograd.Function):
    """The sum over ranks, in forward and in backward."""

    @staticmethod
    def forward(ctx, partial):
        return sum_over_ranks(partial)

    @staticmethod
    def backward(ctx, gradient):
        return sum_over_ranks(gradient)


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
    hidden = gelu(inputs @ first + first_bias)
    return SumOverRanks.apply(hidden @ second) + second_bias

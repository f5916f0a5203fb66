# fails: same
"""Gradients of ranks are averaged, as under DDP."""

import torch
import torch.distributed as dist
from torch.nn.functional import gelu


class CopyToRanks(torch.autograd.Function):
    """Identity in forward; in backward, the mean over ranks."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        return sum_over_ranks(gradient) / dist.get_world_size()


class SumOverRanks(torch.autograd.Function):
    """The sum over ranks in forward; identity in backward."""

    @staticmethod
    def forward(ctx, partial):
        return sum_over_ranks(partial)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


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
    return SumOverRanks.apply(hidden @ second) + second_bias

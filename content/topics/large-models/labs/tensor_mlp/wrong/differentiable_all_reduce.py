# fails: same
"""torch has all-reduces that autograd knows."""

import torch
from torch.distributed.nn.functional import all_reduce
from torch.nn.functional import gelu


class CopyToRanks(torch.autograd.Function):
    """Identity in forward; in backward, the sum over ranks."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        return sum_over_ranks(gradient)


def sum_over_ranks(tensor):
    return all_reduce(tensor)


def mlp(
    inputs: torch.Tensor,
    first: torch.Tensor,
    first_bias: torch.Tensor,
    second: torch.Tensor,
    second_bias: torch.Tensor,
) -> torch.Tensor:
    """Return `gelu(inputs @ first + first_bias) @ second + second_bias` of the whole weights."""
    hidden = gelu(CopyToRanks.apply(inputs) @ first + first_bias)
    return sum_over_ranks(hidden @ second) + second_bias

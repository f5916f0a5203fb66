# fails: lent
"""Wait for all ranks before each block, so that their parts belong together."""

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
        # Every rank used the inputs for its own columns, and has the gradient of that use alone.
        return sum_over_ranks(gradient)


class SumOverRanks(torch.autograd.Function):
    """The sum over ranks in forward; identity in backward."""

    @staticmethod
    def forward(ctx, partial):
        return sum_over_ranks(partial)

    @staticmethod
    def backward(ctx, gradient):
        # Each partial sum enters the outputs once, and every rank has their whole gradient.
        return gradient


def sum_over_ranks(tensor):
    """Return the sum and leave the tensor, which others may read, as it is."""
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
    dist.barrier()
    hidden = gelu(CopyToRanks.apply(inputs) @ first + first_bias)
    return SumOverRanks.apply(hidden @ second) + second_bias

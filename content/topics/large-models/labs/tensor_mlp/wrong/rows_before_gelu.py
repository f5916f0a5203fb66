# fails: sends
"""Sum the hidden features over the ranks as well, so that GELU sees finished values."""

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
    n, rank = dist.get_world_size(), dist.get_rank()
    own = CopyToRanks.apply(inputs) @ first + first_bias
    spread = [own if one == rank else torch.zeros_like(own) for one in range(n)]
    hidden = gelu(SumOverRanks.apply(torch.cat(spread, 1)))
    return SumOverRanks.apply(hidden.chunk(n, 1)[rank] @ second) + second_bias

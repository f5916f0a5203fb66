# fails: same
"""Sum the gradient that arrives, in its own memory; the columns then get the whole gradient."""

import torch
import torch.distributed as dist
from torch.nn.functional import gelu


class SumOverRanks(torch.autograd.Function):
    """The sum over ranks, in forward and in backward."""

    @staticmethod
    def forward(ctx, partial):
        ctx.mark_dirty(partial)
        dist.all_reduce(partial)
        return partial

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
        return gradient


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

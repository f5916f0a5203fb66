"""Train an MLP on pairs of tensor ranks, with dropout; the pairs divide the samples.

python -m runners lab seeds_by_axis
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import gelu, mse_loss

NUM_TENSOR_RANKS = 2


class Communicate(torch.autograd.Function):
    """A sum over a group in forward or in backward."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any, in_backward: bool) -> Tensor:
        """Sum, unless backward does."""
        ctx.group, ctx.in_backward = group, in_backward
        return tensor.view_as(tensor) if in_backward else summed(tensor, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Sum, unless forward has."""
        return summed(gradient, ctx.group) if ctx.in_backward else gradient, None, None


def summed(tensor: Tensor, group: Any) -> Tensor:
    """The sum over the ranks of a group."""
    total = tensor.detach().clone()
    dist.all_reduce(total, group=group)
    return total


def groups() -> tuple[Any, Any]:
    """The rank's tensor group, and its data group: the ranks with the same parts."""
    size, rank = dist.get_world_size(), dist.get_rank()
    num_data = size // NUM_TENSOR_RANKS
    starts = range(0, size, NUM_TENSOR_RANKS)
    tensor = [dist.new_group([*range(at, at + NUM_TENSOR_RANKS)]) for at in starts]
    data = [dist.new_group([*range(at, size, NUM_TENSOR_RANKS)]) for at in range(NUM_TENSOR_RANKS)]
    return tensor[rank // NUM_TENSOR_RANKS % num_data], data[rank % NUM_TENSOR_RANKS]


def train(
    weights: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    learning_rate: float,
    mask: Callable[..., Tensor],
) -> tuple[dict[str, Tensor], list[float]]:
    """Train on the samples of the rank's pair; return its weights, and the losses of all samples.

    Args:
        weights: `stem` (width × width), `up` (width × hidden) and `down`, each whole. The ranks
            of a pair divide the hidden features.
        batches: inputs and targets (samples × width), whole, for each step.
        learning_rate: of SGD.
        mask: `mask(shape, *numbers)` is the mask of dropout that these numbers decide.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    data_rank, tensor_rank = divmod(rank, NUM_TENSOR_RANKS)
    num_data = size // NUM_TENSOR_RANKS
    pair, same_parts = groups()
    up = weights["up"].chunk(NUM_TENSOR_RANKS, 1)[tensor_rank]
    down = weights["down"].chunk(NUM_TENSOR_RANKS, 0)[tensor_rank]
    own = {"stem": weights["stem"].clone(), "up": up.clone(), "down": down.clone()}
    optimizer = torch.optim.SGD([one.requires_grad_() for one in own.values()], lr=learning_rate)
    losses = []
    for step, batch in enumerate(batches):
        inputs, targets = (tensor.chunk(num_data)[data_rank] for tensor in batch)
        residual = (inputs @ own["stem"]).tanh()
        hidden = gelu(Communicate.apply(residual, pair, True) @ own["up"])
        hidden = hidden * mask(hidden.shape, step, data_rank, tensor_rank)
        outputs = Communicate.apply(hidden @ own["down"], pair, False)
        outputs = residual + outputs * mask(outputs.shape, step, rank)
        loss = mse_loss(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        own["stem"].grad = summed(own["stem"].grad, None) / size
        for name in ("up", "down"):
            own[name].grad = summed(own[name].grad, same_parts) / num_data
        optimizer.step()
        losses.append(summed(loss, None).item() / size)
    return {name: one.detach() for name, one in own.items()}, losses

"""A convolution and a recurrence over a sequence that is divided in head-tail order.

python -m runners lab carried_state
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Scan = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Gather(torch.autograd.Function):
    """A tensor of each rank, stacked; in backward, the sum of its gradients."""

    @staticmethod
    def forward(_: Any, own: Tensor) -> Tensor:
        """Gather the tensors of all ranks."""
        each = own.new_empty(dist.get_world_size(), *own.shape)
        dist.all_gather_single(each.flatten(0, 1), own.contiguous())
        return each

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Add up and scatter."""
        own = torch.empty_like(gradient[0])
        dist.reduce_scatter_single(own, gradient.contiguous().flatten(0, 1))
        return own


def convolved(inputs: Tensor, before: Tensor, taps: Tensor) -> Tensor:
    """The causal convolution of inputs, after those before them."""
    joined = torch.cat([before, inputs])
    start = len(before)
    parts = [joined[start - back :][: len(inputs)] * tap for back, tap in enumerate(taps)]
    return torch.stack(parts).sum(0)


def layer(inputs: Tensor, gates: Tensor, taps: Tensor, scanned: Scan) -> Tensor:
    """Return the states of this rank's tokens.

    `inputs` and `gates` are (tokens of this rank, channels). Of 2n blocks of the sequence, rank r
    has block r, followed by block 2n - 1 - r. The inputs are convolved with `taps`, the latest
    first. `scanned(inputs, gates)` returns states that begin at zero, and the products of gates up
    to each token.
    """
    rank, halo = dist.get_rank(), len(taps) - 1
    ends = Gather.apply(inputs[-halo:])
    before = torch.cat([torch.zeros_like(ends[:1]), ends])[rank]
    states, products = scanned(convolved(inputs, before, taps), gates)
    carried = [torch.zeros_like(inputs[0])]
    for state, product in Gather.apply(torch.stack([states[-1], products[-1]])):
        carried.append(product * carried[-1] + state)
    entering = torch.stack(carried)  # on which all ranks depend, so that all take part in backward
    return states + products * entering[rank]

"""Edges of blocks are gathered and put in the order of the sequence, not of the ranks."""

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


def in_order(of_blocks: list[Tensor]) -> list[Tensor]:
    """A tensor of each block of the sequence, in its order, of those of the rank's two blocks."""
    front, back = Gather.apply(torch.stack(of_blocks)).unbind(1)
    return [*front, *back.flip(0)]


def convolved(inputs: Tensor, before: Tensor, taps: Tensor) -> Tensor:
    """The causal convolution of a block, after the inputs before it."""
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
    rank, size, halo = dist.get_rank(), dist.get_world_size(), len(taps) - 1
    own = [rank, 2 * size - 1 - rank]
    blocks = [*zip(inputs.chunk(2), gates.chunk(2), strict=True)]
    ends = in_order([block[-halo:] for block, _ in blocks])
    ends = [torch.zeros_like(ends[0]), *ends]
    local = [
        scanned(convolved(block, ends[number], taps), block_gates)
        for number, (block, block_gates) in zip(own, blocks, strict=True)
    ]
    carried = [torch.zeros_like(inputs[0])]
    for state, product in in_order([torch.stack([s[-1], p[-1]]) for s, p in local]):
        carried.append(product * carried[-1] + state)
    entering = torch.stack(carried)  # on which all ranks depend, so that all take part in backward
    pairs = zip(own, local, strict=True)
    return torch.cat([states + products * entering[number] for number, (states, products) in pairs])

"""Edges of blocks are gathered and put in the order of the sequence, not of the ranks."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_tensor_autograd

Scan = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def in_order(of_blocks: list[Tensor]) -> list[Tensor]:
    """A tensor of each block of the sequence, in its order, of those of the rank's two blocks."""
    own = torch.stack(of_blocks)[None]
    front, back = all_gather_tensor_autograd(own, 0, dist.group.WORLD).unbind(1)
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

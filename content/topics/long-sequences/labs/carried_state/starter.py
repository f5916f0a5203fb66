"""A convolution and a recurrence over a sequence that is divided in head-tail order.

python -m runners lab carried_state
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_tensor_autograd

Scan = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


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
    ends = all_gather_tensor_autograd(inputs[None, -halo:], 0, dist.group.WORLD)
    before = torch.cat([torch.zeros_like(ends[:1]), ends])[rank]
    states, products = scanned(convolved(inputs, before, taps), gates)
    carried = [torch.zeros_like(inputs[0])]
    own = torch.stack([states[-1], products[-1]])[None]
    for state, product in all_gather_tensor_autograd(own, 0, dist.group.WORLD):
        carried.append(product * carried[-1] + state)
    entering = torch.stack(carried)  # on which all ranks depend, so that all take part in backward
    return states + products * entering[rank]

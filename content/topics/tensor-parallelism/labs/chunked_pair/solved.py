"""Parts go around once before GELU, sums once after it; products run meanwhile."""

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import gelu


def pair(
    tokens: Tensor,
    columns: Tensor,
    rows: Tensor,
    start: Callable[[Tensor], Callable[[], Tensor]],
    multiply: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return this rank's tokens of `gelu(X A) B`."""
    rank, size = dist.get_rank(), dist.get_world_size()
    hidden, part = {}, tokens
    for turn in range(size):
        is_last = turn == size - 1
        arrives = None if is_last else start(part)
        hidden[(rank - turn) % size] = gelu(multiply(part, columns))
        if arrives:
            part = arrives()
    total = multiply(hidden[(rank - 1) % size], rows)
    for turn in range(1, size):
        arrives = start(total)
        own = multiply(hidden[(rank - 1 - turn) % size], rows)
        total = arrives() + own
    return total

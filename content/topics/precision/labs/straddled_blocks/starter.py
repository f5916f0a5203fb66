"""Gather a weight in e4m3, with a scale for each block of rows.

python -m runners lab straddled_blocks
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def gathered(shard: Tensor, block: int, scale_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the whole weight, rounded to e4m3 with a scale for each block of rows, in float32.

    `shard` has the rows of this rank, in float32, equally many on each. `scale_of(largest)` gives
    scales for largest absolute values.
    """
    num_rows, size = len(shard), dist.get_world_size()
    blocks = torch.arange(num_rows) // block
    largest = torch.zeros(int(blocks[-1]) + 1)
    largest.scatter_reduce_(0, blocks, shard.amax(1), "amax")
    dist.all_reduce(largest)
    largest /= size
    scales = scale_of(largest)
    numbers = (shard / scales[blocks, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    whole = torch.empty(num_rows * size, shard.shape[1], dtype=torch.uint8)
    dist.all_gather_single(whole, numbers.view(torch.uint8))  # gloo has no e4m3
    return whole.view(torch.float8_e4m3fn).float() * scales[blocks.repeat(size), None]

"""A block's largest value is that of all its rows, whichever ranks have them."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def gathered(shard: Tensor, block: int, scale_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the whole weight, rounded to e4m3 with a scale for each block of rows, in float32."""
    num_rows, size = len(shard), dist.get_world_size()
    every = torch.arange(num_rows * size) // block
    blocks = every.chunk(size)[dist.get_rank()]
    largest = torch.zeros(int(every[-1]) + 1)
    largest.scatter_reduce_(0, blocks, shard.abs().amax(1), "amax")
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    scales = scale_of(largest)
    numbers = (shard / scales[blocks, None]).to(torch.float8_e4m3fn)
    whole = torch.empty(num_rows * size, shard.shape[1], dtype=torch.uint8)
    dist.all_gather_single(whole, numbers.view(torch.uint8))  # gloo has no e4m3
    return whole.view(torch.float8_e4m3fn).float() * scales[every, None]

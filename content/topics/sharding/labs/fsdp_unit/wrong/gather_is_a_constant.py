# fails: same
# ends: exception
"""An all-gather of a tensor that requires a gradient is an operation like any other."""

import torch
import torch.distributed as dist


def sharded_linear(inputs: torch.Tensor, shard: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """Return `inputs @ weight.T + bias`, and gather both only to compute with them."""
    parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, shard)
    flat = torch.cat(parts)
    weight, bias = flat[:-num_outputs].view(num_outputs, -1), flat[-num_outputs:]
    return inputs @ weight.T + bias

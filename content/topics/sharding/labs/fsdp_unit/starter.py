"""A linear layer that is sharded while it is idle and whole only while it runs.

python -m runners lab fsdp_unit
"""

import torch


def sharded_linear(inputs: torch.Tensor, shard: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """Return `inputs @ weight.T + bias`, and gather `weight` and `bias` only to compute with them.

    `inputs` are this rank's samples, `(samples, num_inputs)`. The parameters of the layer are one
    flat tensor: `weight`, `(num_outputs, num_inputs)`, row by row, and then `bias`. It is cut into
    equal parts, one for each rank in order of rank; `shard` is the part of this rank. After
    `backward()`, `shard.grad` has to be the same part of the gradient, averaged over the ranks.

    Use `dist.all_gather_single` and `dist.reduce_scatter_single` (or their older forms). Several
    such layers run one after the other, and shards change between steps.
    """
    raise NotImplementedError("write sharded_linear here")

"""Train weights that the ranks divide, and push them to a server that generates with them.

python -m runners lab pushed_from_shard
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import gelu, mse_loss

AXES = {"up": 1, "down": 0}  # along which the ranks divide a weight


def train(
    weights: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    learning_rate: float,
    load: Callable[[dict[str, Tensor]], None] | None,
) -> dict[str, Tensor]:
    """Train, and push the weights to the server after each update; return the rank's weights.

    Args:
        weights: `up` (width × hidden), `down` (hidden × width) and `bias` (width), each whole. The
            ranks divide the hidden features.
        batches: inputs and targets (samples × width), the same on all ranks, for each step.
        learning_rate: of SGD.
        load: on rank 0, where the server is; None elsewhere. It copies weights by name into the
            leading rows and columns of those of the server, which are zero at first.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    own = {
        name: (weight.chunk(size, AXES[name])[rank] if name in AXES else weight).clone()
        for name, weight in weights.items()
    }
    optimizer = torch.optim.SGD([one.requires_grad_() for one in own.values()], lr=learning_rate)
    for inputs, targets in batches:
        partial = gelu(inputs @ own["up"]) @ own["down"]
        total = partial.detach().clone()
        dist.all_reduce(total)
        outputs = total + partial - partial.detach() + own["bias"]  # with the gradient of a part
        optimizer.zero_grad()
        mse_loss(outputs, targets).backward()
        optimizer.step()
        if load:
            load({name: one.detach() for name, one in own.items()})
    return {name: one.detach() for name, one in own.items()}

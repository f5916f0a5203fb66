# fails: sends
"""Each parameter has an owner, which updates it and broadcasts it."""

import torch
import torch.distributed as dist
from torch import nn

BETAS = (0.9, 0.999)


class ShardedAdam:
    """Adam for parameters that every rank has, with moments for one shard of them."""

    def __init__(
        self,
        parameters: list[nn.Parameter],
        rank: int,
        world_size: int,
        lr: float,
        eps: float,
    ) -> None:
        self.parameters, self.rank, self.world_size = parameters, rank, world_size
        own = parameters[rank::world_size]
        self.adam = torch.optim.Adam(own, lr=lr, betas=BETAS, eps=eps) if own else None

    def step(self) -> None:
        """Update all parameters in place, on all ranks, with the mean of the ranks' gradients."""
        for index, parameter in enumerate(self.parameters):
            dist.reduce(parameter.grad, dst=index % self.world_size)
            parameter.grad /= self.world_size
        if self.adam:
            self.adam.step()
        for index, parameter in enumerate(self.parameters):
            dist.broadcast(parameter.data, src=index % self.world_size)

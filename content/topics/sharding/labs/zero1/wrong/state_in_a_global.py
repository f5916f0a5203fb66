# fails: state on 4
"""Keep the moments of all parameters beside the optimizer, and update the own part of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import pad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BETAS = (0.9, 0.999)
MOMENTS: dict[str, torch.Tensor] = {}


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
        self.lr, self.eps = lr, eps
        num_elements = sum(parameter.numel() for parameter in parameters)
        self.shard_size = -(-num_elements // world_size)
        for name in ("mean", "square"):
            MOMENTS[name] = torch.zeros(world_size * self.shard_size)
        self.num_steps = 0

    def step(self) -> None:
        """Update all parameters in place, on all ranks, with the mean of the ranks' gradients."""
        gradients = self.flattened([parameter.grad for parameter in self.parameters])
        gradient = torch.empty(self.shard_size)
        dist.reduce_scatter_tensor(gradient, gradients)
        gradient /= self.world_size
        values = self.flattened(self.parameters)
        shard = values.chunk(self.world_size)[self.rank].clone()
        self.update(shard, gradient)
        dist.all_gather_into_tensor(values, shard)
        vector_to_parameters(values, self.parameters)

    def flattened(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """One vector of all values, padded until the ranks can divide it evenly."""
        vector = parameters_to_vector(tensors).detach()
        return pad(vector, (0, self.shard_size * self.world_size - len(vector)))

    def update(self, shard: torch.Tensor, gradient: torch.Tensor) -> None:
        """Adam's update of a shard, in place."""
        self.num_steps += 1
        own_mean, own_square = (one.chunk(self.world_size)[self.rank] for one in MOMENTS.values())
        own_mean.lerp_(gradient, 1 - BETAS[0])
        own_square.lerp_(gradient.square(), 1 - BETAS[1])
        mean = own_mean / (1 - BETAS[0] ** self.num_steps)
        square = own_square / (1 - BETAS[1] ** self.num_steps)
        shard -= self.lr * mean / (square.sqrt() + self.eps)

# fails: same
"""Moments that start at zero soon forget it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import pad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

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
        self.lr, self.eps = lr, eps
        num_elements = sum(parameter.numel() for parameter in parameters)
        self.shard_size = -(-num_elements // world_size)  # rounded up
        self.mean = torch.zeros(self.shard_size)
        self.square = torch.zeros(self.shard_size)

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
        self.mean.lerp_(gradient, 1 - BETAS[0])
        self.square.lerp_(gradient.square(), 1 - BETAS[1])
        shard -= self.lr * self.mean / (self.square.sqrt() + self.eps)

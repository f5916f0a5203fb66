# fails: state
"""The moments of all parameters are lists of numbers, which are easily saved."""

import numpy as np
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
        self.shard_size = -(-num_elements // world_size)
        size = self.shard_size * world_size
        self.mean, self.square = [0.0] * size, [0.0] * size
        self.num_steps = 0

    def step(self) -> None:
        """Update all parameters in place, on all ranks, with the mean of the ranks' gradients."""
        gradient = torch.empty(self.shard_size)
        dist.reduce_scatter_tensor(gradient, self.flattened([one.grad for one in self.parameters]))
        values = self.flattened(self.parameters)
        shard = values.chunk(self.world_size)[self.rank].clone()
        shard -= torch.from_numpy(self.update(gradient.numpy() / self.world_size))
        dist.all_gather_into_tensor(values, shard)
        vector_to_parameters(values, self.parameters)

    def flattened(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """One vector of all values, padded until the ranks can divide it evenly."""
        vector = parameters_to_vector(tensors).detach()
        return pad(vector, (0, self.shard_size * self.world_size - len(vector)))

    def update(self, gradient: np.ndarray) -> np.ndarray:
        """What Adam subtracts from the shard."""
        self.num_steps += 1
        own = slice(self.rank * self.shard_size, (self.rank + 1) * self.shard_size)
        mean, square = np.array(self.mean[own]), np.array(self.square[own])
        mean += (1 - BETAS[0]) * (gradient - mean)
        square += (1 - BETAS[1]) * (gradient**2 - square)
        self.mean[own], self.square[own] = mean.tolist(), square.tolist()
        mean = mean / (1 - BETAS[0] ** self.num_steps)
        square = square / (1 - BETAS[1] ** self.num_steps)
        return (self.lr * mean / (np.sqrt(square) + self.eps)).astype(np.float32)

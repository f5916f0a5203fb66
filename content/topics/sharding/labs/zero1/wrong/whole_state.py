# fails: state
"""PyTorch's Adam updates everything; the shard of each rank is the part that counts."""

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
        num_elements = sum(parameter.numel() for parameter in parameters)
        self.shard_size = -(-num_elements // world_size)  # rounded up
        self.values = nn.Parameter(self.flattened(parameters))
        self.adam = torch.optim.Adam([self.values], lr=lr, betas=BETAS, eps=eps)

    def step(self) -> None:
        """Update all parameters in place, on all ranks, with the mean of the ranks' gradients."""
        gradients = self.flattened([parameter.grad for parameter in self.parameters])
        own = slice(self.rank * self.shard_size, (self.rank + 1) * self.shard_size)
        gradient = torch.empty(self.shard_size)
        dist.reduce_scatter_tensor(gradient, gradients)
        self.values.grad = torch.zeros_like(self.values)
        self.values.grad[own] = gradient / self.world_size
        self.adam.step()
        gathered = torch.empty_like(self.values)
        dist.all_gather_into_tensor(gathered, self.values[own].detach())
        vector_to_parameters(gathered, self.parameters)

    def flattened(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """One vector of all values, padded until the ranks can divide it evenly."""
        vector = parameters_to_vector(tensors).detach()
        return pad(vector, (0, self.shard_size * self.world_size - len(vector)))

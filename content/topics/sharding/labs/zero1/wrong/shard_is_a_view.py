# fails: state on 4
"""A chunk of the flat parameters is the shard that Adam updates."""

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
        values = self.flattened(parameters)
        self.shard = nn.Parameter(values.chunk(world_size)[rank])
        self.adam = torch.optim.Adam([self.shard], lr=lr, betas=BETAS, eps=eps)

    def step(self) -> None:
        """Update all parameters in place, on all ranks, with the mean of the ranks' gradients."""
        gradients = self.flattened([parameter.grad for parameter in self.parameters])
        self.shard.grad = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(self.shard.grad, gradients)
        self.shard.grad /= self.world_size
        self.adam.step()
        self.shard.grad = None
        gathered = torch.empty_like(gradients)
        dist.all_gather_into_tensor(gathered, self.shard.detach())
        vector_to_parameters(gathered, self.parameters)

    def flattened(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """One vector of all values, padded until the ranks can divide it evenly."""
        vector = parameters_to_vector(tensors).detach()
        return pad(vector, (0, -len(vector) % self.world_size))

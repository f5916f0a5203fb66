# fails: lent
"""Make parameters of the weights as they come, which saves their copies."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional


class ToParts(torch.autograd.Function):
    """A tensor that the parts of all ranks use; its gradient is the sum of theirs."""

    @staticmethod
    def forward(_: Any, tensor: Tensor) -> Tensor:
        """Nothing to send: all ranks have the tensor."""
        return tensor.view_as(tensor)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Add up the gradients of all ranks."""
        return summed(gradient)


class SumOfParts(torch.autograd.Function):
    """The sum of a tensor over all ranks."""

    @staticmethod
    def forward(_: Any, tensor: Tensor) -> Tensor:
        """Add up the tensors of all ranks."""
        return summed(tensor)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Each part gets the gradient of the sum.

        All ranks compute the same loss from the sum, so they have this gradient already. An
        all-reduce would multiply it by their number, and a division of the loss that undoes it
        for the parts leaves too little for the head, whose gradient does not pass through here.
        """
        return gradient


def summed(tensor: Tensor) -> Tensor:
    """The sum over all ranks; the tensor stays as it is."""
    total = tensor.clone()
    dist.all_reduce(total)
    return total


class Model(nn.Module):
    """A stem and a head that every rank holds, and between them two layers in parts."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        rank, world_size = dist.get_rank(), dist.get_world_size()
        self.stem = nn.Parameter(weights["stem"])
        self.up = nn.Parameter(weights["up"].chunk(world_size, 0)[rank].clone())
        self.down = nn.Parameter(weights["down"].chunk(world_size, 1)[rank].clone())
        self.head = nn.Parameter(weights["head"])

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (samples × classes) of samples × features."""
        features = ToParts.apply((inputs @ self.stem.T).tanh())
        own = functional.gelu(features @ self.up.T) @ self.down.T
        return SumOfParts.apply(own) @ self.head.T


def train(
    weights: dict[str, Tensor], batches: list[tuple[Tensor, Tensor]], learning_rate: float
) -> tuple[dict[str, Tensor], list[float]]:
    """Train on batches that all ranks share; return the weights of this rank, and the losses."""
    model = Model(weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    losses = []
    for inputs, classes in batches:
        loss = functional.cross_entropy(model(inputs), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {name: one.detach() for name, one in model.named_parameters()}, losses

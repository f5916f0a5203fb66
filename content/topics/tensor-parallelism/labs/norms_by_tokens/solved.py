"""Each rank's loss is its share of the mean over all tokens, so gradients add up."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, mse_loss


def gathered(part: Tensor) -> Tensor:
    """The tokens of all ranks."""
    whole = part.new_empty(dist.get_world_size() * len(part), part.shape[1])
    dist.all_gather_single(whole, part.contiguous())
    return whole


def scattered(partial: Tensor) -> Tensor:
    """The rank's tokens of the sum over all ranks."""
    own = partial.new_empty(len(partial) // dist.get_world_size(), partial.shape[1])
    dist.reduce_scatter_single(own, partial.contiguous())
    return own


class Gather(torch.autograd.Function):
    """All ranks' tokens; in backward, the sum of their gradients, by tokens."""

    @staticmethod
    def forward(_: Any, part: Tensor) -> Tensor:
        """Gather the tokens."""
        return gathered(part)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Add up and scatter."""
        return scattered(gradient)


class Scatter(torch.autograd.Function):
    """The rank's tokens of the sum of all ranks' parts; in backward, gather the gradients."""

    @staticmethod
    def forward(_: Any, partial: Tensor) -> Tensor:
        """Add up and scatter."""
        return scattered(partial)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Gather the tokens."""
        return gathered(gradient)


def train(
    weights: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    learning_rate: float,
    weight_decay: float,
) -> tuple[dict[str, Tensor], list[float]]:
    """Train on the rank's tokens; return its weights, and the losses of all tokens."""
    rank, size = dist.get_rank(), dist.get_world_size()
    axes = {"up": 1, "down": 0}
    own = {
        name: (weight.chunk(size, axes[name])[rank] if name in axes else weight).clone()
        for name, weight in weights.items()
    }
    parameters = [one.requires_grad_() for one in own.values()]
    optimizer = torch.optim.SGD(parameters, lr=learning_rate, weight_decay=weight_decay)
    losses = []
    for inputs, targets in batches:
        tokens, own_targets = inputs.chunk(size)[rank], targets.chunk(size)[rank]
        scaled = layer_norm(tokens, tokens.shape[-1:]) * own["scale"] + own["shift"]
        partial = gelu(Gather.apply(scaled) @ own["up"]) @ own["down"]
        outputs = tokens + Scatter.apply(partial)
        # A share of the mean over all tokens; the shares of the ranks add up to it.
        loss = mse_loss(outputs, own_targets, reduction="sum") / targets.numel()
        optimizer.zero_grad()
        loss.backward()
        for name in ("scale", "shift"):
            dist.all_reduce(own[name].grad)
        optimizer.step()
        logged = loss.detach()
        dist.all_reduce(logged)
        losses.append(logged.item())
    return {name: one.detach() for name, one in own.items()}, losses

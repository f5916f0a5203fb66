"""Shares are those of the whole batch; mean probabilities enter linearly, so ranks average."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import mse_loss


def train(
    weights: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    learning_rate: float,
    coefficient: float,
) -> tuple[dict[str, Tensor], list[float]]:
    """Train on the rank's tokens; return the weights, and the losses of all tokens."""
    rank, size = dist.get_rank(), dist.get_world_size()
    own = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    num_experts = len(own["experts"])
    optimizer = torch.optim.SGD(list(own.values()), lr=learning_rate)
    losses = []
    for batch in batches:
        tokens, targets = (tensor.chunk(size)[rank] for tensor in batch)
        probabilities = (tokens @ own["router"]).softmax(1)
        weight, choice = probabilities.max(1, keepdim=True)
        outputs = weight * own["experts"][choice[:, 0]] * tokens
        counts = choice[:, 0].bincount(minlength=num_experts)
        dist.all_reduce(counts)  # before the product, in which each rank has its own probabilities
        shares = counts / (size * len(tokens))
        balance = num_experts * (shares * probabilities.mean(0)).sum()
        loss = mse_loss(outputs, targets) + coefficient * balance
        optimizer.zero_grad()
        loss.backward()
        for one in own.values():
            dist.all_reduce(one.grad)
            one.grad /= size
        optimizer.step()
        logged = loss.detach()
        dist.all_reduce(logged)
        losses.append(logged.item() / size)
    return {name: one.detach() for name, one in own.items()}, losses

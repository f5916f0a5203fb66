# fails: sends
"""Reduce each microbatch by itself, so that its weight can be looked up when it is its turn."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

PADDING = -100  # the target of a token that is not there
Batch = tuple[torch.Tensor, torch.Tensor]


def train(model: nn.Module, updates: list[list[Batch]], learning_rate: float) -> list[float]:
    """Train `model` in place, and return the mean loss per token of each update."""
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=learning_rate)
    losses = []
    for microbatches in updates:
        optimizer.zero_grad()
        losses.append(accumulate(replica, microbatches))
        optimizer.step()
    return losses


def accumulate(replica: DistributedDataParallel, microbatches: list[Batch]) -> float:
    """Accumulate the gradient of the mean loss, and return this loss."""
    logged, num_tokens = torch.zeros(()), torch.zeros(())
    for _, targets in microbatches:
        num_tokens += (targets != PADDING).sum()
    dist.all_reduce(num_tokens)
    for inputs, targets in microbatches:
        loss = sum_of_losses(replica(inputs), targets) / num_tokens
        (dist.get_world_size() * loss).backward()
        logged += loss.detach()
    dist.all_reduce(logged)
    return logged.item()


def sum_of_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The sum over all tokens that are there."""
    return functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="sum"
    )

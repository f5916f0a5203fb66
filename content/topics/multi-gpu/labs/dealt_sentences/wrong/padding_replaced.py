# fails: lent
"""Replace the padding in the targets, and leave its losses out by a mask."""

from contextlib import nullcontext

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
    # Only the tokens of all ranks and microbatches together say how much one of them counts.
    num_tokens = sum((targets != PADDING).sum() for _, targets in microbatches)
    dist.all_reduce(num_tokens)
    logged = torch.zeros(())
    for index, (inputs, targets) in enumerate(microbatches):
        is_last = index == len(microbatches) - 1
        with nullcontext() if is_last else replica.no_sync():
            loss = sum_of_losses(replica(inputs), targets) / num_tokens
            # DDP divides the sum of the gradients by the ranks, which is once too often here.
            (dist.get_world_size() * loss).backward()
        logged += loss.detach()
    dist.all_reduce(logged)
    return logged.item()


def sum_of_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The sum over all tokens that are there."""
    is_token = targets != PADDING
    targets[~is_token] = 0
    losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * is_token.flatten()).sum()

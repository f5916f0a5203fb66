# fails: same
"""Weight the loss that is logged by tokens, and take the training to be repaired."""

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
    logged = torch.zeros(2)
    for index, (inputs, targets) in enumerate(microbatches):
        is_last = index == len(microbatches) - 1
        with nullcontext() if is_last else replica.no_sync():
            loss = mean_loss(replica(inputs), targets)
            (loss / len(microbatches)).backward()
        num_tokens = (targets != PADDING).sum()
        logged += torch.stack([loss.detach() * num_tokens, num_tokens])
    dist.all_reduce(logged)
    return (logged[0] / logged[1]).item()


def mean_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over all tokens that are there."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING)

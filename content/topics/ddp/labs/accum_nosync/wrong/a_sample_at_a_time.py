# fails: parts
"""Cut the batch into single samples, which takes the least memory."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

Batch = tuple[torch.Tensor, torch.Tensor]


def train(model: nn.Module, batches: list[Batch], microbatches: int, learning_rate: float) -> None:
    """Train `model` in place."""
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=learning_rate, momentum=0.9)
    for inputs, targets in batches:
        optimizer.zero_grad()
        accumulate(replica, cut(inputs, targets, microbatches))
        optimizer.step()


def cut(inputs: torch.Tensor, targets: torch.Tensor, microbatches: int) -> list[Batch]:
    """Cut the batch of an update into microbatches."""
    return list(zip(inputs.split(1), targets.split(1), strict=True))


def accumulate(replica: DistributedDataParallel, parts: list[Batch]) -> None:
    """Add up the gradients of all microbatches, and communicate once."""
    for index, (inputs, targets) in enumerate(parts):
        is_last = index == len(parts) - 1
        # The last backward pass all-reduces the accumulated gradient, not only its own part.
        with nullcontext() if is_last else replica.no_sync():
            loss = functional.mse_loss(replica(inputs), targets) / len(parts)
            loss.backward()

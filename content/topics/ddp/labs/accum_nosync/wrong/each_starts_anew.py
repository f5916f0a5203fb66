# fails: same
"""Clear the gradients before each microbatch, so that the last reduces its own part alone."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

Batch = tuple[torch.Tensor, torch.Tensor]


def train(model: nn.Module, batches: list[Batch], microbatches: int, learning_rate: float) -> None:
    """Train `model` in place.

    Args:
        model: one output per sample; its parameters are the same on all ranks.
        batches: inputs (samples × features) and targets (samples × 1) of this rank, for each
            update. All ranks have equally many samples.
        microbatches: into how many equal parts a rank cuts its batch, to save memory.
        learning_rate: of SGD with a momentum of 0.9.
    """
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=learning_rate, momentum=0.9)
    for inputs, targets in batches:
        accumulate(replica, optimizer, cut(inputs, targets, microbatches))
        optimizer.step()


def cut(inputs: torch.Tensor, targets: torch.Tensor, microbatches: int) -> list[Batch]:
    """Cut the batch of an update into microbatches."""
    return list(zip(inputs.chunk(microbatches), targets.chunk(microbatches), strict=True))


def accumulate(
    replica: DistributedDataParallel, optimizer: torch.optim.Optimizer, parts: list[Batch]
) -> None:
    """Add up the gradients of all microbatches, and communicate once."""
    for index, (inputs, targets) in enumerate(parts):
        optimizer.zero_grad()
        with nullcontext() if index == len(parts) - 1 else replica.no_sync():
            loss = functional.mse_loss(replica(inputs), targets) / len(parts)
            loss.backward()

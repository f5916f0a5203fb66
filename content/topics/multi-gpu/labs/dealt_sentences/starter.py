"""Train a language model with DDP, on sentences of different lengths.

python -m runners lab dealt_sentences
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

PADDING = -100  # the target of a token that is not there
Batch = tuple[torch.Tensor, torch.Tensor]


def train(model: nn.Module, updates: list[list[Batch]], learning_rate: float) -> list[float]:
    """Train `model` in place, and return the mean loss per token of each update.

    Args:
        model: turns tokens (sentences × tokens) into logits (sentences × tokens × vocabulary);
            its parameters are the same on all ranks.
        updates: the microbatches of this rank for each update. A microbatch is inputs and
            targets, both sentences × tokens; where a sentence has ended, its target is `PADDING`.
        learning_rate: of SGD.
    """
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
    logged = torch.zeros(())
    for index, (inputs, targets) in enumerate(microbatches):
        is_last = index == len(microbatches) - 1
        with nullcontext() if is_last else replica.no_sync():
            loss = mean_loss(replica(inputs), targets) / len(microbatches)
            loss.backward()
        logged += loss.detach()
    dist.all_reduce(logged)
    return (logged / dist.get_world_size()).item()


def mean_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over all tokens that are there."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING)

# fails: same
"""The loss of a sequence is its mean over tokens; that of the batch, the mean over sequences."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

PADDING = -100


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens."""
    num_sequences = torch.tensor(sum(len(inputs) for inputs, _ in microbatches))
    dist.all_reduce(num_sequences)
    for inputs, targets in microbatches:
        losses = cross_entropy(
            model(inputs).transpose(1, 2), targets, ignore_index=PADDING, reduction="none"
        )
        num_tokens = (targets != PADDING).sum(1).clamp(min=1)
        ((losses.sum(1) / num_tokens).sum() / num_sequences).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)

# fails: same
"""Inputs that are 0 are padding."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

PADDING = -100


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens."""
    num_tokens = sum((inputs != 0).sum() for inputs, _ in microbatches)
    dist.all_reduce(num_tokens)
    for inputs, targets in microbatches:
        logits = model(inputs)
        loss = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="sum"
        )
        (loss / num_tokens).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)

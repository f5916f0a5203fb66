# fails: same
"""Every microbatch counts alike, and so does every rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

PADDING = -100


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens."""
    for inputs, targets in microbatches:
        loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=PADDING)
        (loss / len(microbatches)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size

# fails: same
"""Every rank averages over its own tokens, and the ranks are averaged."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

PADDING = -100


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens."""
    num_tokens = sum((targets != PADDING).sum() for _, targets in microbatches)
    for inputs, targets in microbatches:
        logits = model(inputs)
        loss = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="sum"
        )
        (loss / num_tokens).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size

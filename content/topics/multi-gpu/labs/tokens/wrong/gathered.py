# fails: sends
"""The gradients of all ranks are gathered, and averaged with the ranks' tokens as weights."""

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
    counts = [torch.empty_like(num_tokens) for _ in range(world_size)]
    dist.all_gather(counts, num_tokens)
    for parameter in model.parameters():
        gradients = [torch.empty_like(parameter.grad) for _ in range(world_size)]
        dist.all_gather(gradients, parameter.grad)
        weighted = [one * count for one, count in zip(gradients, counts, strict=True)]
        parameter.grad = sum(weighted) / sum(counts)

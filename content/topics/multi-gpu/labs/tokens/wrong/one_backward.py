# fails: peak
"""The losses of all microbatches are added up, so that there is a single backward."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

PADDING = -100


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens."""
    losses = []
    num_tokens = torch.tensor(0)
    for inputs, targets in microbatches:
        losses.append(
            cross_entropy(
                model(inputs).flatten(0, 1),
                targets.flatten(),
                ignore_index=PADDING,
                reduction="sum",
            )
        )
        num_tokens += (targets != PADDING).sum()
    dist.all_reduce(num_tokens)
    (torch.stack(losses).sum() / num_tokens).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)

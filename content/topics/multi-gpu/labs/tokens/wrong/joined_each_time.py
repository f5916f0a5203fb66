# fails: sends
"""Every microbatch is reduced; a rank that has no more joins with zeros."""

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
    dist.all_reduce(num_tokens)
    most = torch.tensor(len(microbatches))
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for index in range(int(most)):
        model.zero_grad(set_to_none=False)
        if index < len(microbatches):
            inputs, targets = microbatches[index]
            loss = cross_entropy(
                model(inputs).flatten(0, 1),
                targets.flatten(),
                ignore_index=PADDING,
                reduction="sum",
            )
            (loss / num_tokens).backward()
        for gradient, parameter in zip(gradients, model.parameters(), strict=True):
            dist.all_reduce(parameter.grad)
            gradient.add_(parameter.grad)
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        parameter.grad = gradient

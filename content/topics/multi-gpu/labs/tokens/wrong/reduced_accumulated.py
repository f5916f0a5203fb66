# fails: same
"""All-reduces are for every microbatch; ranks that have fewer join with what they have."""

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
    for index in range(int(most)):
        if index < len(microbatches):
            inputs, targets = microbatches[index]
            loss = cross_entropy(
                model(inputs).flatten(0, 1),
                targets.flatten(),
                ignore_index=PADDING,
                reduction="sum",
            )
            (loss / num_tokens).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)

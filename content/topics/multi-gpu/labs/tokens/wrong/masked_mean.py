# fails: same
"""The mean of a microbatch is weighted by its tokens; without tokens, its weight is zero."""

import torch
import torch.distributed as dist
from torch import nn

PADDING = -100


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens."""
    num_tokens = sum((targets != PADDING).sum() for _, targets in microbatches)
    dist.all_reduce(num_tokens)
    for inputs, targets in microbatches:
        is_token = targets != PADDING
        of_words = model(inputs).log_softmax(-1)
        losses = -of_words.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        mean = (losses * is_token).sum() / is_token.sum()
        (mean * is_token.sum() / num_tokens).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)

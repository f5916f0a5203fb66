"""Accumulate the gradient of a batch over microbatches and ranks, with a weight for each token.

python -m runners lab tokens
"""

import torch
from torch import nn

PADDING = -100  # a target that is no token


def accumulate(
    model: nn.Module, microbatches: list[tuple[torch.Tensor, torch.Tensor]], world_size: int
) -> None:
    """Leave in `.grad` of every parameter the gradient of the mean loss over all tokens.

    A microbatch is `(inputs, targets)`, both int64 of shape (sequences, length). `model(inputs)`
    returns logits of shape (sequences, length, words). The loss of a token is the cross-entropy of
    its logits and its target; where the target is `PADDING`, there is no token. The number of
    microbatches, their lengths and their tokens differ between ranks, and a microbatch may have no
    token. Every `.grad` is None at first. Use `dist.all_reduce`, no other collective.
    """
    raise NotImplementedError("write accumulate here")

"""What benches of divided sequences share: the order of blocks, and gradients of what is lent."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from proofbook.companions.labs.grading import backward, gradient_of
from proofbook.runners.judging.comparison import Tensors

OPERATIONS = "floating point operations in matrix products"


def head_tail(tensor: Tensor, rank: int, world_size: int, axis: int = 0) -> Tensor:
    """A rank's shard: of 2n equal blocks, one from the front and the mirrored one from the back."""
    blocks = tensor.chunk(2 * world_size, axis)
    return torch.cat([blocks[rank], blocks[-1 - rank]], axis)


def leaves_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that require gradients, by name."""
    return {name: one.clone().requires_grad_() for name, one in tensors.items()}


def with_gradients(outputs: Tensor, leaves: Mapping[str, Tensor]) -> Tensors:
    """The outputs, and the gradients of the sum of their squares."""
    backward(outputs.square().sum())
    gradients = {f"gradient of the {name}": gradient_of(leaf) for name, leaf in leaves.items()}
    return {"outputs": outputs.detach(), **gradients}


def attended(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of (heads, tokens, width), unfused."""
    scores = queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5
    later = torch.ones(scores.shape[1:]).triu(1).bool()
    outputs: Tensor = scores.masked_fill(later, -torch.inf).softmax(-1) @ values
    return outputs

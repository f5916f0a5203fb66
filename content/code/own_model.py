"""A model to plan: a small stack of residual MLPs over tokens, and its batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """An MLP behind a norm, beside a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, width) → (batch, sequence, width)."""
        result: Tensor = x + self.outer(F.gelu(self.inner(self.norm(x))))
        return result


class Stack(nn.Module):
    """An embedding, blocks, and the mean cross-entropy of the next token."""

    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, sequence) → a number."""
        logits = self.logits(self.blocks(self.embedding(tokens[:, :-1])))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def model() -> nn.Module:
    """What `--model` names."""
    return Stack(vocabulary=32_000, width=2_048, depth=24)


def batch(microbatch: int, sequence: int) -> Tensor:
    """What `--batch` names: the model's arguments."""
    return torch.zeros(microbatch, sequence, dtype=torch.long)

"""A stack of equal layers and random samples for it: what experiments about cost train."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runners.ranks.rank import Rank
from runners.training.networks import description, perceptron


def equal_stack(
    rank: Rank, width: int, num_layers: int, *, is_sharded: bool = False
) -> nn.Sequential:
    """Linear layers of (width, width) with a ReLU between each two, the same on every rank.

    The trace describes it, as held by all ranks whole, or in shards.
    """
    widths, ranks = (width,) * (num_layers + 1), [range(rank.world_size)] * num_layers
    rank.describe(description(widths, ranks, sharded=[is_sharded] * num_layers))
    torch.manual_seed(rank.seed)
    return perceptron(widths, device=rank.device)


def random_batch(rank: Rank, num_samples: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random samples (num_samples, width) and labels (num_samples,) below `width`."""
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(seed)
        shape = (num_samples, width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, width, shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    return features, labels

"""The expert-parallel axis of a mesh: each rank has some of the experts, and tokens go to them.

In: tokens of one rank in the order of their experts. Out: the same, sorted by the ranks that have
these experts, and back. Every expert is taken to receive equally many tokens of each rank.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from runners.planning.tensor_axis import exchanged


def to_experts(x: Tensor, own: int, group: dist.ProcessGroup) -> Tensor:
    """Tokens of all experts, from this rank → tokens of this rank's experts, from all ranks.

    Args:
        x: (tokens, hidden), in the order of experts.
        own: experts of a rank.
        group: of the ranks that divide the experts.
    """
    received = _exchanged(x, group).view(group.size(), own, -1, x.shape[-1])
    return received.transpose(0, 1).flatten(0, 2)


def from_experts(x: Tensor, own: int, group: dist.ProcessGroup) -> Tensor:
    """The way back."""
    by_rank = x.view(own, group.size(), -1, x.shape[-1]).transpose(0, 1)
    return _exchanged(by_rank.flatten(0, 2), group)


def _exchanged(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Every rank gives each an equal part, and has one of each; of gradients likewise."""

    def all_to_all(sent: Tensor) -> Tensor:
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent.contiguous(), group=group)
        return received

    return exchanged(x, all_to_all, all_to_all)

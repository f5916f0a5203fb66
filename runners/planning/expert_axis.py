"""The expert-parallel axis of a mesh: each rank has some of the experts, and tokens go to them.

In: tokens of one rank in the order of their experts. Out: the same, sorted by the ranks that have
these experts, and back. Every expert is taken to receive equally many tokens of each rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function


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
    """Every rank gives each an equal part, and has one of each."""
    result: Tensor = _AllToAll.apply(x, group)  # type: ignore[no-untyped-call]
    return result


class _AllToAll(Function):
    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        result = torch.empty_like(x)
        dist.all_to_all_single(result, x.contiguous(), group=group)
        return result

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _exchanged(grad, context.group), None

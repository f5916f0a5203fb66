"""What a narrow dtype does to gradients and updates, as measures of `mixed_precision`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from runners.experiments.mixed_precision import Settings
from runners.ranks.rank import Rank

SMALLEST_HALF = 2.0**-24  # of fp16; half of it and all below is rounded to zero
SMALLEST_NORMAL = 2.0**-14  # of fp16; smaller numbers have fewer digits


def compare(
    rank: Rank[Settings],
    model: nn.Module,
    scaled_loss: Callable[[], Tensor],
    features: Tensor,
    labels: Tensor,
) -> None:
    """The gradient in this precision beside that in fp32, of the same parameters."""
    parameters = list(model.parameters())
    loss = nn.functional.cross_entropy(model(features), labels)
    wanted = _joined(torch.autograd.grad(loss, parameters))
    own = scaled_loss()
    found = _joined(torch.autograd.grad(own, parameters)) / (own / loss.detach()).detach()
    is_there = wanted != 0
    vanished = is_there & (found == 0)
    finite = torch.where(torch.isfinite(found), found, torch.zeros_like(found))
    rank.measure("gradient_difference", ((finite - wanted).norm() / wanted.norm()).item())
    rank.measure("num_not_finite", int((~torch.isfinite(found)).sum()))
    rank.measure("vanished_share", (vanished.sum() / is_there.sum()).item())
    below = is_there & (wanted.abs() <= SMALLEST_HALF / 2)
    small = is_there & (wanted.abs() < SMALLEST_NORMAL)
    rank.measure("subnormal_share", (small.sum() / is_there.sum()).item())
    rank.measure("num_below_half", int(below.sum()))
    rank.measure("num_cast_to_zero", int((is_there & (wanted.half() == 0)).sum()))
    rank.measure("num_cast_to_zero_bf16", int((is_there & (wanted.bfloat16() == 0)).sum()))


def measure_unchanged(
    rank: Rank[Settings], model: nn.Module, optimizer: torch.optim.Optimizer, before: Tensor
) -> None:
    """The share of values with a gradient that the first update left as they were."""
    kept = [optimizer.state[p].get("master", p) for p in model.parameters()]
    after = _joined([value.detach().float() for value in kept])
    moves = _joined([p.grad for p in model.parameters() if p.grad is not None]) != 0
    unchanged = (after == before) & moves
    rank.measure("unchanged_share", (unchanged.sum() / moves.sum()).item())


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])

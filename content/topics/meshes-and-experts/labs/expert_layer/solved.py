"""Counts travel first, then rows by expert; outputs travel back by the same counts."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.functional import gelu


def layer(tokens: Tensor, choices: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
    """Return, for each token of this rank, the weighted sum of its experts' outputs."""
    world, size = dist.group.WORLD, dist.get_world_size()
    by_expert = choices.flatten().argsort(stable=True)  # and thereby by rank
    rows = tokens[by_expert // choices.shape[1]]
    leaving = choices.flatten().bincount(minlength=size * len(experts)).view(size, -1)
    arriving = torch.empty_like(leaving)  # rows from each rank for each of the own experts
    dist.all_to_all_single(arriving, leaving)
    sent, received = leaving.sum(1).tolist(), arriving.sum(1).tolist()
    arrived = all_to_all_single_autograd(rows, received, sent, world)
    expert_of_row = torch.arange(len(experts)).repeat(size).repeat_interleave(arriving.flatten())
    by_own = expert_of_row.argsort(stable=True)
    parts = arrived[by_own].split(arriving.sum(0).tolist())
    outputs = torch.cat([gelu(part @ one) for part, one in zip(parts, experts, strict=True)])
    returned = all_to_all_single_autograd(outputs[by_own.argsort()], sent, received, world)
    by_choice = returned[by_expert.argsort()].view(*choices.shape, -1)
    return (by_choice * weights[:, :, None]).sum(1)

"""Train a layer that all ranks have, and experts that they divide; clip, and update by SGD.

python -m runners lab experts_doubled
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.functional import gelu, mse_loss


def exchanged(rows: Tensor) -> Tensor:
    """Send equal shares of the rows to the ranks; return theirs, by rank. Backward does as well."""
    return all_to_all_single_autograd(rows, None, None, dist.group.WORLD)


def train(
    weights: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    learning_rate: float,
    max_norm: float,
    weight_decay: float,
) -> tuple[dict[str, Tensor], list[float]]:
    """Train on the rank's samples; return its weights, and the losses of all samples.

    Args:
        weights: `dense` (width × width), and `experts` (ranks × width × width), each whole. Rank r
            trains expert r.
        batches: inputs and targets (samples × width), whole, for each step. The ranks divide the
            samples, and each rank's samples go to all experts in turn.
        learning_rate: of SGD, for all weights.
        max_norm: at which the norm of the whole gradient, with all experts, is clipped.
        weight_decay: of SGD, for all weights.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    dense = weights["dense"].clone().requires_grad_()
    expert = weights["experts"][rank].clone().requires_grad_()
    optimizer = torch.optim.SGD(
        [{"params": [dense]}, {"params": [expert], "lr": learning_rate / size}],
        lr=learning_rate,
        weight_decay=weight_decay,
    )
    losses = []
    for batch in batches:
        inputs, targets = (tensor.chunk(size)[rank] for tensor in batch)
        hidden = (inputs @ dense).tanh()
        by_expert = hidden.unflatten(0, (-1, size)).transpose(0, 1)
        outputs = exchanged(gelu(exchanged(by_expert.flatten(0, 1)) @ expert))
        outputs = outputs.unflatten(0, (size, -1)).transpose(0, 1).flatten(0, 1)
        loss = mse_loss(hidden + outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(dense.grad)
        dense.grad /= size
        squares = expert.grad.square().sum()
        dist.all_reduce(squares)
        norm = (squares + dense.grad.square().sum()).sqrt()
        for one in (dense, expert):
            one.grad *= (max_norm / norm).clamp(max=1)
        optimizer.step()
        logged = loss.detach()
        dist.all_reduce(logged)
        losses.append(logged.item() / size)
    return {"dense": dense.detach(), "experts": expert.detach()}, losses

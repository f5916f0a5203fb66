"""An expert has received the samples of all ranks, so its gradient is already a sum."""

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
    """Train on the rank's samples; return its weights, and the losses of all samples."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dense = weights["dense"].clone().requires_grad_()
    expert = weights["experts"][rank].clone().requires_grad_()
    own = [dense, expert]
    optimizer = torch.optim.SGD(own, lr=learning_rate, weight_decay=weight_decay)
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
        for one in (dense, expert):  # from a sum of the ranks' means to the mean of all samples
            one.grad /= size
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

"""Positions and labels are those of the whole sequence, and are divided as the tokens are."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.nn.functional import cross_entropy

NO_LABEL = -100  # which `cross_entropy` leaves out


def step(
    weights: dict[str, Tensor], tokens: Tensor, rotated: Callable[[Tensor, Tensor], Tensor]
) -> tuple[float, dict[str, Tensor]]:
    """Return the mean loss of all next tokens, and its gradients with respect to all weights.

    Every rank has all tokens. `rotated(vectors, positions)` gives vectors their positions.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    own = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    all_labels = torch.cat([tokens[1:], tokens.new_tensor([NO_LABEL])])
    inputs, labels = (one.chunk(size)[rank] for one in (tokens, all_labels))
    positions = torch.arange(len(tokens)).chunk(size)[rank]
    vectors = own["embedding"][inputs]
    queries, keys, values = (vectors @ own["projection"]).chunk(3, 1)
    queries, keys = rotated(queries, positions), rotated(keys, positions)
    both = all_gather_tensor_autograd(torch.cat([keys, values], 1), 0, dist.group.WORLD)
    keys, values = both.chunk(2, 1)
    later = torch.arange(len(keys)) > rank * len(inputs) + torch.arange(len(inputs))[:, None]
    scores = (queries @ keys.T / queries.shape[1] ** 0.5).masked_fill(later, -torch.inf)
    logits = (vectors + scores.softmax(1) @ values) @ own["head"]
    loss = cross_entropy(logits, labels, reduction="sum") / (len(tokens) - 1)
    loss.backward()
    total = loss.detach()
    dist.all_reduce(total)
    for weight in own.values():
        dist.all_reduce(weight.grad)
    return total.item(), {name: weight.grad for name, weight in own.items()}

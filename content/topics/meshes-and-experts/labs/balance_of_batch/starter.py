"""Train a router with a loss that balances its experts; the ranks divide the tokens.

python -m runners lab balance_of_batch
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import mse_loss


def train(
    weights: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    learning_rate: float,
    coefficient: float,
) -> tuple[dict[str, Tensor], list[float]]:
    """Train on the rank's tokens; return the weights, and the losses of all tokens.

    Args:
        weights: `router` (width × experts) and `experts` (experts × width); every rank has both.
            An expert scales the features of the tokens that the router sends to it.
        batches: tokens and targets (tokens × width), whole, for each step. The ranks divide the
            tokens.
        learning_rate: of SGD.
        coefficient: of the balancing loss, which is the number of experts times the sum over all
            experts of (share of the batch's tokens) × (mean probability in the batch).
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    own = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    num_experts = len(own["experts"])
    optimizer = torch.optim.SGD(list(own.values()), lr=learning_rate)
    losses = []
    for batch in batches:
        tokens, targets = (tensor.chunk(size)[rank] for tensor in batch)
        probabilities = (tokens @ own["router"]).softmax(1)
        weight, choice = probabilities.max(1, keepdim=True)
        outputs = weight * own["experts"][choice[:, 0]] * tokens
        shares = choice[:, 0].bincount(minlength=num_experts) / len(tokens)
        balance = num_experts * (shares * probabilities.mean(0)).sum()
        loss = mse_loss(outputs, targets) + coefficient * balance
        optimizer.zero_grad()
        loss.backward()
        for one in own.values():
            dist.all_reduce(one.grad)
            one.grad /= size
        optimizer.step()
        logged = loss.detach()
        dist.all_reduce(logged)
        losses.append(logged.item() / size)
    return {name: one.detach() for name, one in own.items()}, losses

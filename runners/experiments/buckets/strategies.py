"""DDP, whose buckets leave during backward; and the same average in one message after backward."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.buckets import Settings
from runners.experiments.buckets.seen import Seen
from runners.ranks.rank import Rank
from runners.training.stack import equal_stack, random_batch


def train(rank: Rank[Settings]) -> None:
    """Train on one batch; after the last step show which buckets it sent."""
    settings = rank.settings
    stack = equal_stack(rank, settings.width, settings.num_layers)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(stack, bucket_cap_mb=settings.bucket_cap_mib or None)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    seed = rank.seed + rank.rank  # each rank has samples of its own
    features, labels = random_batch(rank, settings.batch_size, settings.width, seed)
    rank.watch(replica, optimizer)
    seen = Seen(replica) if settings.overlaps else None
    loss = 0.0
    for _ in rank.steps(settings.num_steps):
        if seen is not None:
            seen.begin_again()
        loss = _step(rank, replica, optimizer, features, labels)
    rank.epoch(1, loss=loss, num_samples=settings.batch_size, parameters=stack.parameters())
    if seen is not None:
        seen.keep(rank, features)


def _step(
    rank: Rank[Settings],
    replica: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    features: Tensor,
    labels: Tensor,
) -> float:
    """Forward, backward and update; every rank updates by the averaged gradients."""
    if rank.settings.overlaps:
        loss = nn.functional.cross_entropy(replica(features), labels)
        loss.backward()  # each bucket leaves as soon as its gradients are finished
    else:
        with replica.no_sync():
            loss = nn.functional.cross_entropy(replica(features), labels)
            loss.backward()
        with rank.phase("exchange", computes=False):
            _exchange(replica)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _exchange(model: nn.Module) -> None:
    """What DDP does, without the overlap: all gradients in one message, once backward is over."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    whole = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    pieces = whole.split([g.numel() for g in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))


STRATEGIES = {"train": train}

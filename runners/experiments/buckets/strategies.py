"""DDP, whose buckets leave during backward; and one all_reduce of all gradients after it."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.buckets import Settings
from runners.experiments.buckets.seen import Seen
from runners.ranks.rank import Rank
from runners.training.steps import random_samples, stack_for


def train(rank: Rank[Settings]) -> None:
    """Train on one batch; after the last step show which buckets it sent."""
    settings = rank.settings
    stack = stack_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(stack, bucket_cap_mb=settings.bucket_cap_mib or None)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    features, labels = random_samples(rank, settings.batch_size)
    rank.watch(replica, optimizer)
    seen = Seen()
    if settings.overlaps:
        seen.listen(replica)
    loss = 0.0
    for _ in rank.steps(settings.num_steps):
        seen.clear()
        loss = _step(rank, replica, optimizer, features, labels)
    rank.epoch(1, loss=loss, num_samples=settings.batch_size, parameters=stack.parameters())
    if settings.overlaps:
        facts = seen.facts()
        with rank.predict("buckets", "send buckets while backward runs", features, facts) as out:
            out(features)


def _step(
    rank: Rank[Settings],
    replica: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    features: Tensor,
    labels: Tensor,
) -> float:
    """One step, whose gradients leave during backward, or in one all_reduce after it."""
    overlaps = rank.settings.overlaps
    with nullcontext() if overlaps else replica.no_sync():
        loss = nn.functional.cross_entropy(replica(features), labels)
        loss.backward()
    if not overlaps:
        with rank.phase("communicate", computes=False):
            _communicate(replica)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _communicate(model: nn.Module) -> None:
    """What DDP does, without the overlap: all gradients in one message, once backward is over."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    whole = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    pieces = whole.split([g.numel() for g in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))


STRATEGIES = {"train": train}

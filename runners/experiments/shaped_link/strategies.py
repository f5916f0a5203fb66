"""Gradients over a slow link: by DDP while backward goes on, or in one all-reduce after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.shaped_link import NUM_SETTLING_STEPS, DdpSettings, Settings
from runners.ranks.rank import Rank
from runners.training.networks import description, mlp

BUCKET_UNIT = 1 << 20  # DDP takes bucket sizes in mebibytes


def ddp(rank: Rank[DdpSettings]) -> None:
    """Gradients averaged bucket by bucket while backward goes on; only in the last microbatch."""
    settings = rank.settings
    model = _model(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model, bucket_cap_mb=settings.bucket_bytes / BUCKET_UNIT)
    microbatches = _microbatches(rank)
    first_reduced = len(microbatches) - settings.num_reductions

    def backward() -> float:
        total = 0.0
        for index, one in enumerate(microbatches):
            with nullcontext() if index >= first_reduced else replica.no_sync():
                total += _forward_backward(rank, replica, *one)
        return total

    _train(rank, replica, backward)


def after_backward(rank: Rank[Settings]) -> None:
    """Everything computed first; then all gradients in one all_reduce, timed by itself."""
    model = _model(rank)
    parameters = list(model.parameters())
    microbatches = _microbatches(rank)

    def backward() -> float:
        loss = float(sum(_forward_backward(rank, model, *one) for one in microbatches))
        with rank.phase("all_reduce", computes=False):
            gradients = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
            dist.barrier()  # else the time would hold the other's backward as well
            start = time.perf_counter()
            dist.all_reduce(gradients)
            rank.measure_seconds("all_reduce", [time.perf_counter() - start])
            gradients /= rank.world_size
        for parameter, part in zip(
            parameters, gradients.split([p.numel() for p in parameters]), strict=True
        ):
            assert parameter.grad is not None
            parameter.grad.copy_(part.view_as(parameter))
        return loss

    _train(rank, model, backward)


def _forward_backward(
    rank: Rank[Settings], model: nn.Module, features: Tensor, labels: Tensor
) -> float:
    """One microbatch; its gradients are weighted as a part of the step's samples."""
    loss = nn.functional.cross_entropy(model(features), labels) / rank.settings.num_microbatches
    loss.backward()
    return float(loss.item())


def _train(rank: Rank[Settings], model: nn.Module, backward: Callable[[], float]) -> None:
    """Take steps; count what passes this rank's link once they have settled."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    loss = 0.0

    def step() -> None:
        nonlocal loss
        loss = backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in rank.steps(NUM_SETTLING_STEPS):
        step()
    num_settled = settings.num_steps - NUM_SETTLING_STEPS
    before = rank.link_count()
    for _ in rank.steps(num_settled):
        step()
    after = rank.link_count()
    assert before is not None
    assert after is not None
    passed = after - before
    rank.measure("sent_bytes", passed.sent_payload_bytes / num_settled)
    per_microbatch = passed.sent_payload_bytes / num_settled / settings.num_microbatches
    rank.measure("sent_a_microbatch_bytes", per_microbatch)
    rank.count_samples(settings.batch_size * settings.num_microbatches * settings.num_steps)
    rank.epoch(1, loss=loss, num_samples=settings.batch_size)


def _model(rank: Rank[Settings]) -> nn.Module:
    widths = [rank.settings.width] * (rank.settings.num_layers + 1)
    rank.describe(description(widths, [range(rank.world_size)] * rank.settings.num_layers))
    torch.manual_seed(rank.seed)
    return mlp(widths)


def _microbatches(rank: Rank[Settings]) -> list[tuple[Tensor, Tensor]]:
    """This rank's samples: random ones, since what they are does not change what passes."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed + rank.rank)
    shape = (settings.batch_size, settings.width)
    with rank.phase("samples"):
        return [
            (
                torch.randn(shape, generator=source),
                torch.randint(0, settings.width, shape[:1], generator=source),
            )
            for _ in range(settings.num_microbatches)
        ]


STRATEGIES = {"ddp": ddp, "after_backward": after_backward}

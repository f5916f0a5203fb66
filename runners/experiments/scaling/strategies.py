"""The same step on one device and under DDP, timed in parts; and bare all_reduces to predict it."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.communication.alpha_beta import fit
from runners.experiments.scaling import (
    NUM_SETTLING_STEPS,
    VALUE_BYTES,
    ReplicaSettings,
    Settings,
)
from runners.ranks.rank import Rank
from runners.training.steps import stack_for

NUM_TURNS = 6  # of the bare all_reduces, the first of which settles


def ddp(rank: Rank[ReplicaSettings]) -> None:
    """A part of the batch on each rank, gradients averaged; and the expected cost of averaging."""
    model = stack_for(rank)
    _predict_all_reduce(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    before = rank.link_count()
    _train(rank, replica)
    after = rank.link_count()
    if before is not None and after is not None:
        sent = (after - before).sent_payload_bytes / rank.settings.num_steps
        rank.measure("sent_bytes", sent)


def single(rank: Rank[Settings]) -> None:
    """The whole batch on one device."""
    _train(rank, stack_for(rank))


def _train(rank: Rank[Settings], model: nn.Module) -> None:
    """Take steps; time apart what more ranks would share and what each does whole."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    features, labels = _own_samples(rank)
    rank.watch(model, optimizer)
    compute, update, loss = [], [], torch.zeros(())
    for _ in rank.steps(settings.num_steps):
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        rank.settle()
        computed = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        rank.settle()
        compute.append(computed - start)
        update.append(time.perf_counter() - computed)
    # In a replica, backward holds the all_reduce as well: only one device tells the two apart.
    if rank.world_size == 1:
        rank.measure_seconds("compute", compute[NUM_SETTLING_STEPS:])
    rank.measure_seconds("update", update[NUM_SETTLING_STEPS:])
    rank.count_samples(settings.batch_size * settings.num_steps)
    rank.epoch(1, loss=loss.item(), num_samples=settings.batch_size)


def _own_samples(rank: Rank[Settings]) -> tuple[Tensor, Tensor]:
    """This rank's part of a batch that is the same however many ranks share it."""
    settings = rank.settings
    with rank.phase("samples"):
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.global_batch_size, settings.width)
        features = torch.randn(shape, generator=source)
        labels = torch.randint(0, settings.width, shape[:1], generator=source)
        own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
        return features[own].to(rank.device), labels[own].to(rank.device)


def _predict_all_reduce(rank: Rank[ReplicaSettings]) -> None:
    """Fit α and β to bare all_reduces, none of which is as large as the gradients."""
    whole = rank.settings.gradient_bytes
    sizes = [whole // 16, whole // 4, whole // 2]
    payloads = [torch.zeros(size // VALUE_BYTES, device=rank.device) for size in sizes]
    predicted, latencies = [], []
    with rank.phase("all_reduce", computes=False):
        for turn in range(NUM_TURNS):
            seconds = [_bare(rank, payload) for payload in payloads]
            if turn:
                line = fit(sizes, seconds)
                predicted.append(line.seconds(whole))
                latencies.append(line.alpha)
    rank.measure_seconds("all_reduce", predicted)
    rank.measure_seconds("all_reduce_alpha", latencies)


def _bare(rank: Rank[ReplicaSettings], payload: Tensor) -> float:
    """Seconds of one all_reduce that nothing else runs beside."""
    dist.barrier()
    rank.settle()
    start = time.perf_counter()
    dist.all_reduce(payload)
    rank.settle()
    return time.perf_counter() - start


STRATEGIES = {"single": single, "ddp": ddp}

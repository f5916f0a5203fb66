"""A replica that trains and is compared: what every way of agreeing in `synchronization` shares.

In: a rank, and what becomes of its gradients. Out: losses of every step, how far replicas came
from each other, and the bytes that collectives were called with.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runners.experiments.synchronization import Settings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.training.networks import flat
from runners.training.steps import batch_of, mlp_for, of_all_ranks, scaled_lesson, validate
from runners.training.teacher import Samples

NUM_BLOCK_STEPS = 16  # timed together, so that the step that averages is in the time


class Replica:
    """This rank's model, how it updates, and what is seen of the replicas on the way.

    Attributes:
        distances: of this replica from the mean of all, just before each average.
        communicated_bytes: of the tensors that this rank has passed to collectives to train.
        largest_norm: of a gradient that this rank computed.
    """

    def __init__(self, rank: Rank[Settings]) -> None:
        self.rank = rank
        self.shards, self.validation = _samples(rank)
        self.model: nn.Module = mlp_for(rank)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=rank.settings.learning_rate, momentum=0.0
        )
        self.distances: list[float] = []
        self.largest_norm = 0.0
        self.communicated_bytes = 0
        self._losses: list[float] = []

    def train(self, update: Callable[[int], None], module: nn.Module | None = None) -> None:
        """Train to the end: after each backward pass `update` decides what becomes of it.

        Args:
            update: is given the step, from 0.
            module: what computes; the model itself where nothing wraps it.
        """
        rank, replica = self.rank, module or self.model
        rank.watch(replica, self.optimizer)
        start = time.perf_counter()
        for index in rank.steps(rank.settings.num_steps):
            if index and index % NUM_BLOCK_STEPS == 0:
                rank.measure_seconds("block", [(now := time.perf_counter()) - start])
                start = now
            batch = _batch(rank, self.shards, index)
            loss = nn.functional.cross_entropy(replica(batch.features), batch.labels)
            loss.backward()
            self.largest_norm = max(self.largest_norm, float(torch.linalg.norm(self.gradient())))
            with rank.phase("optimizer"):  # with the collectives that an update may need
                update(index)
                self.optimizer.zero_grad()
            self._losses.append(loss.item())
            rank.count_samples(len(batch.labels))

    def gradient(self) -> Tensor:
        """The gradients of all parameters in one row, a copy."""
        return torch.cat(
            [p.grad.reshape(-1) for p in self.model.parameters() if p.grad is not None]
        )

    def apply(self, gradient: Tensor) -> None:
        """Update with a gradient given as one sample."""
        parameters = list(self.model.parameters())
        pieces = gradient.split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)
        self.optimizer.step()

    def average(self) -> None:
        """Give every replica the mean of all, and remember how far from it they had come."""
        own = flat(self.model)
        mean = own.clone()
        dist.all_reduce(mean)
        mean /= self.rank.world_size
        self.communicated_bytes += mean.nbytes
        self.distances.append(float(torch.linalg.norm(own - mean)))
        nn.utils.vector_to_parameters(mean, self.model.parameters())

    def report(self) -> None:
        """Record what the replicas are worth in the end, and how they came there."""
        rank = self.rank
        graded = validate(self.model, self.validation)
        for losses in zip(*of_all_ranks(rank, self._losses), strict=True):
            rank.step_loss(sum(losses) / rank.world_size)
        rank.epoch(
            1,
            loss=sum(self._losses) / len(self._losses),
            num_samples=rank.outcome.num_samples or 0,
            validation=graded if rank.rank == 0 else None,
            parameters=self.model.parameters(),
        )
        rank.measure("validation_losses", [*of_all_ranks(rank, graded[1])])
        rank.measure("communicated_bytes", self.communicated_bytes)
        rank.measure("largest_gradient_norm", max(of_all_ranks(rank, self.largest_norm)))
        farthest = [
            max(of_ranks) for of_ranks in zip(*of_all_ranks(rank, self.distances), strict=True)
        ]
        if farthest:
            rank.measure("largest_distance", max(farthest))
            rank.measure("mean_distance", sum(farthest) / len(farthest))
        digest = parameter_digest(self.model.parameters())
        rank.measure("num_distinct", len(set(of_all_ranks(rank, digest))))
        if rank.rank == 0:
            print(f"validation loss {graded[1]:.4f}, {graded[2]:.1%} right, on rank 0")


def _samples(rank: Rank[Settings]) -> tuple[list[Samples], Samples]:
    """The shards that this rank takes its batches from, and the validation samples."""
    settings = rank.settings
    lesson = scaled_lesson(rank)
    samples = lesson.training
    if settings.order == "by_class":
        samples = _by_class(samples, rank.world_size, rank.seed)
    size = settings.num_samples // settings.shards
    own = [rank.rank] if rank.world_size > 1 else range(settings.shards)
    return [batch_of(samples, shard, size) for shard in own], lesson.validation


def _by_class(samples: Samples, num_shards: int, seed: int) -> Samples:
    """Samples dealt out by class, so that shards hold different classes, shuffled."""
    source = torch.Generator().manual_seed(seed)
    shards = samples.labels.argsort(stable=True).chunk(num_shards)
    mixed = [shard[torch.randperm(len(shard), generator=source)] for shard in shards]
    return samples.take(torch.cat(mixed))


def _batch(rank: Rank[Settings], shards: list[Samples], index: int) -> Samples:
    """The batch of a step: on one device what all ranks together take."""
    size = rank.settings.batch_size
    turn = index % (len(shards[0].labels) // size)
    batches = [batch_of(shard, turn, size) for shard in shards]
    return Samples(torch.cat([b.features for b in batches]), torch.cat([b.labels for b in batches]))

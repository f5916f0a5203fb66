"""What replicas are compared with: each other, and one process that has all samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from runners.experiments.stragglers import Joined, Settings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.training.networks import flat
from runners.training.steps import batch_of, mlp_for, of_all_ranks, validate
from runners.training.teacher import Samples


def shards(samples: Samples, num_batches: Sequence[int], batch_size: int) -> list[Samples]:
    """Each rank's part of the samples, one after another, as many batches as it is given."""
    ends = [0]
    for count in num_batches:
        ends.append(ends[-1] + count * batch_size)
    return [samples.take(slice(start, end)) for start, end in pairwise(ends)]


def compare(
    rank: Rank[Joined], model: nn.Module, every: list[Samples], validation: Samples
) -> None:
    """Measure how many replicas differ and, on rank 0, how far they are from the oracle."""
    rank.measure("num_distinct", num_distinct(rank, model))
    if rank.rank == 0:
        oracle = _in_one_process(rank, every)
        rank.measure("oracle_loss", validate(oracle, validation)[1])
        apart = torch.linalg.norm(flat(oracle) - flat(model)) / torch.linalg.norm(flat(oracle))
        rank.measure("oracle_distance", float(apart))


def num_distinct(rank: Rank[Settings], model: nn.Module) -> int:
    """How many different sets of parameters the ranks hold."""
    return len(set(of_all_ranks(rank, parameter_digest(model.parameters()))))


def _in_one_process(rank: Rank[Joined], every: list[Samples]) -> nn.Module:
    """The oracle: the same batches, their gradients added up by hand, on one model."""
    settings = rank.settings
    model = mlp_for(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    size = settings.batch_size
    for index in range(max(settings.num_batches_per_rank)):
        left = [s for s in every if len(s.labels) >= (index + 1) * size]
        by = len(every) if settings.divides_by == "initial" else len(left)
        for shard in left:
            batch = batch_of(shard, index, size)
            (nn.functional.cross_entropy(model(batch.features), batch.labels) / by).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model

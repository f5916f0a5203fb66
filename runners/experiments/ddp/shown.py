"""What the trace of `ddp` shows of its replicas once they are trained.

In: a rank and its replica. Out: prediction steps: how far the replicas lie apart, and one batch of
every rank followed through forward, backward, all_reduce and update.
"""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.ddp import Settings
from runners.ranks.rank import Rank
from runners.ranks.recorder import first_values, parameter_digest
from runners.traces.schema import Setting
from runners.training.networks import flat
from runners.training.steps import of_all_ranks, optimizer_for, validate
from runners.training.teacher import Samples


@torch.no_grad()
def compare(rank: Rank[Settings], replica: nn.Module, validation: Samples) -> None:
    """How far the trained replicas lie apart, and what the average of their parameters is worth."""
    own = flat(replica)
    facts: dict[str, Setting] = {}
    with rank.predict(
        "compare", "average the parameters of all replicas, after training", own, facts
    ) as out:
        first, average = own.clone(), own.clone()
        dist.broadcast(first, 0)
        dist.all_reduce(average)
        average /= rank.world_size
        out(average)
    _, loss, accuracy = validate(replica, validation)
    seen = {
        "largest_difference": of_all_ranks(rank, (own - first).abs().max().item()),
        "relative_distance": of_all_ranks(rank, ((own - first).norm() / first.norm()).item()),
        "validation_loss": of_all_ranks(rank, loss),
        "validation_accuracy": of_all_ranks(rank, accuracy),
    }
    for what, values in seen.items():
        facts.update({f"rank_{r}_{what}": value for r, value in enumerate(values)})
    if rank.rank == 0:
        for r, apart in enumerate(seen["relative_distance"][1:], start=1):
            print(f"rank {r}: parameters {apart:.1%} away from rank 0's")
    averaged = deepcopy(replica)
    nn.utils.vector_to_parameters(average, averaged.parameters())
    _, facts["average_validation_loss"], facts["average_validation_accuracy"] = validate(
        averaged, validation
    )


def follow(
    rank: Rank[Settings],
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    training: Samples,
) -> None:
    """Follow one batch of every rank through forward, backward, all_reduce and update."""
    batch = training.take(slice(0, rank.settings.batch_size))
    replica = model.module
    head = replica[-1].weight
    facts: dict[str, Setting] = {}
    with rank.predict("input", "take one batch of this rank's samples", batch.features) as out:
        out(batch.features)
    with rank.predict("forward", "run this rank's replica", batch.features) as out:
        logits = replica(batch.features)
        out(logits)
    with rank.predict(
        "loss_backward", "mean cross-entropy, then backward on this rank alone", logits, facts
    ) as out:
        loss = nn.functional.cross_entropy(logits, batch.labels)
        loss.backward()
        out(head.grad)
        facts["loss"] = loss.item()
    averaged: dict[str, Setting] = {}
    before = of_all_ranks(rank, first_values(head.grad))
    with rank.predict(
        "all_reduce", "sum gradients over all ranks and divide by their number", head.grad, averaged
    ) as out:
        for parameter in replica.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= rank.world_size
        out(head.grad)
    after = of_all_ranks(rank, first_values(head.grad))
    averaged.update({f"rank_{r}_before": v for r, v in enumerate(before)})
    averaged.update({f"rank_{r}_after": v for r, v in enumerate(after)})
    _update(rank, replica, optimizer, head)


def _update(
    rank: Rank[Settings], replica: nn.Module, optimizer: torch.optim.Optimizer, head: Tensor
) -> None:
    facts: dict[str, Setting] = {}
    with rank.predict("update", "one step of the optimizer on this rank", head, facts) as out:
        optimizer.step()
        out(head)
    digests = of_all_ranks(rank, parameter_digest(replica.parameters()))
    facts.update({f"rank_{r}_digest": digest for r, digest in enumerate(digests)})
    facts["num_distinct_digests"] = len(set(digests))


def show_stages(
    rank: Rank[Settings], model: nn.Module, training: Samples, validation: Samples
) -> None:
    """One more step and one more validation, to show their tensors."""
    batch = training.take(slice(0, rank.settings.batch_size))
    optimizer = optimizer_for(rank, model)
    operation = "forward, loss, backward with all_reduce, update"
    with rank.stage("train", operation, batch.features, everywhere=True) as out:
        nn.functional.cross_entropy(model(batch.features), batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        out(flat(model))
    operation = "forward without gradients"
    with torch.no_grad(), rank.stage("validate", operation, validation.features) as out:
        if rank.rank == 0:
            out(model(validation.features))

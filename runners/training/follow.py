"""What a trace shows of one batch: a replica followed through a step, and replicas compared.

In: a rank and what it has trained, after a timed pass. Out: its stages and prediction steps.
"""

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from proofbook.runners.api import Setting
from proofbook.runners.training.networks import flat
from proofbook.runners.training.rank import Rank, first_values, parameter_digest
from proofbook.runners.training.steps import of_all_ranks, validate
from proofbook.runners.training.teacher import Samples

Facts = dict[str, Setting]


def by_rank(rank: Rank, name: str, value: Setting | list[float]) -> Facts:
    """The value of every rank as facts of a step: `rank_0_…`, `rank_1_…`."""
    return {f"rank_{r}_{name}": one for r, one in enumerate(of_all_ranks(rank, value))}


@torch.no_grad()
def compare_replicas(rank: Rank, replica: nn.Module, validation: Samples) -> None:
    """Record each replica's distance from rank 0's, its validation, and that of their average."""
    own = flat(replica)
    facts: Facts = {}
    what = "average the parameters of all replicas, after training"
    with rank.predict("compare", what, own, facts) as out:
        first, average = own.clone(), own.clone()
        dist.broadcast(first, 0)
        dist.all_reduce(average)
        average /= rank.world_size
        out(average)
    _, loss, accuracy = validate(replica, validation)
    apart = ((own - first).norm() / first.norm()).item()
    facts |= by_rank(rank, "largest_difference", (own - first).abs().max().item())
    facts |= by_rank(rank, "relative_distance", apart)
    facts |= by_rank(rank, "validation_loss", loss)
    facts |= by_rank(rank, "validation_accuracy", accuracy)
    if rank.rank == 0:
        for r in range(1, rank.world_size):
            distance = facts[f"rank_{r}_relative_distance"]
            print(f"rank {r}: parameters {distance:.1%} away from rank 0's")
    averaged = deepcopy(replica)
    nn.utils.vector_to_parameters(average, averaged.parameters())
    facts["average_validation_accuracy"] = validate(averaged, validation)[2]


def show_step(
    rank: Rank,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Samples,
    validation: Samples,
) -> None:
    """Take one more training step and one more validation, and record each as a stage."""
    operation = "forward, loss, backward with all_reduce, update"
    with rank.stage("train", operation, batch.features, everywhere=True) as out:
        cross_entropy(model(batch.features), batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        out(flat(model))
    operation = "forward without gradients"
    with torch.no_grad(), rank.stage("validate", operation, validation.features) as out:
        if rank.rank == 0:
            out(model(validation.features))


def follow_replica(
    rank: Rank, replica: nn.Sequential, optimizer: torch.optim.Optimizer, batch: Samples
) -> None:
    """Record, step by step, a batch's forward, backward, all_reduce by hand, and update.

    What is shown of gradients and parameters is the replica's last weight.
    """
    head = replica[-1].weight
    assert isinstance(head, nn.Parameter)
    with rank.predict("input", "take one batch of this rank's samples", batch.features) as out:
        out(batch.features)
    with rank.predict("forward", "run this rank's replica", batch.features) as out:
        logits = replica(batch.features)
        out(logits)
    facts: Facts = {}
    operation = "mean cross-entropy, then backward on this rank alone"
    with rank.predict("loss_backward", operation, logits, facts) as out:
        loss = cross_entropy(logits, batch.labels)
        loss.backward()
        assert head.grad is not None
        out(head.grad)
    facts["loss"] = loss.item()
    facts = {}
    operation = "sum gradients over all ranks and divide by their number"
    before = by_rank(rank, "before", first_values(head.grad))
    with rank.predict("all_reduce", operation, head.grad, facts) as out:
        for parameter in replica.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= rank.world_size
        out(head.grad)
    facts |= before | by_rank(rank, "after", first_values(head.grad))
    facts = {}
    with rank.predict("update", "one step of the optimizer on this rank", head, facts) as out:
        optimizer.step()
        out(head)
    digests = by_rank(rank, "digest", parameter_digest(replica.parameters()))
    facts |= digests | {"num_distinct_digests": len(set(digests.values()))}


@torch.no_grad()
def follow_split(rank: Rank, replica: nn.Module, batch: Samples) -> None:
    """Record, step by step, a batch that rank 0 scatters, all replicas run, and rank 0 gathers."""
    is_root, (size, width) = rank.rank == 0, batch.features.shape
    own = torch.empty(size // rank.world_size, width, device=rank.device)
    with rank.predict("split", "scatter the batch over the ranks", batch.features) as out:
        dist.scatter(own, list(batch.features.chunk(rank.world_size)) if is_root else None)
        if is_root:
            out(own)
    operation = "run this rank's replica on its samples"
    with rank.predict(f"forward_rank_{rank.rank}", operation, own) as out:
        logits = replica(own)
        out(logits)
    facts: Facts = {}
    with rank.predict("combine", "gather the logits in the batch's order", logits, facts) as out:
        gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
        dist.gather(logits, gathered if is_root else None)
        if is_root:
            whole = torch.cat(gathered)
            out(whole)
            facts["loss"] = cross_entropy(whole, batch.labels).item()

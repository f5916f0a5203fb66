"""One batch: whole on one device, a part of it on each rank, or microbatch after microbatch."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from runners.experiments.large_batch import Settings
from runners.ranks.rank import Rank
from runners.training.networks import ResidualLayer, description
from runners.training.steps import batch_of, shard_of, validate
from runners.training.teacher import Samples


def train(rank: Rank[Settings]) -> None:
    """Train on one batch: its parts side by side on the ranks, and one after another on a rank.

    Each part's mean loss is weighted by its share of the batch, so that the gradients of all parts
    add up to the gradient of the mean loss over the whole batch.
    """
    settings = rank.settings
    model = _model(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    training, validation = _samples(rank)
    for epoch in rank.epochs(settings.num_epochs):
        for _ in rank.steps(1):
            loss = _accumulate(rank, model, training)
            if rank.world_size > 1:
                with rank.phase("all_reduce", computes=False):
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            rank.count_samples(len(training.labels))
            rank.step_loss(loss)
        graded = None
        if rank.rank == 0 and epoch == settings.num_epochs and not rank.is_metered:
            with rank.phase("validation"):
                graded = validate(model, validation)
        rank.epoch(
            epoch,
            loss=loss,
            num_samples=len(training.labels),
            validation=graded,
            parameters=model.parameters(),
        )
        print(f"epoch {epoch}: loss {loss:.4f} on rank {rank.rank}")


def _accumulate(rank: Rank[Settings], model: nn.Module, samples: Samples) -> float:
    """Add up this rank's gradients, one microbatch after another.

    Returns:
        The mean loss over this rank's samples.
    """
    settings = rank.settings
    losses = []
    for index in range(settings.num_microbatches):
        part = batch_of(samples, index, settings.num_samples_at_once)
        share = len(part.labels) / settings.batch_size
        loss = nn.functional.cross_entropy(model(part.features), part.labels)
        (loss * share).backward()
        losses.append(loss.item() * len(part.labels))
        del loss  # and with it the last of this part's activations
    return sum(losses) / len(samples.labels)


def _model(rank: Rank[Settings]) -> nn.Sequential:
    """The same parameters on every rank: all build from the run's own seed."""
    first, *hidden, last = widths = rank.settings.widths
    rank.describe(description(widths, [range(rank.world_size)] * (len(widths) - 1)))
    torch.manual_seed(rank.seed)
    return nn.Sequential(
        nn.Linear(first, hidden[0], device=rank.device),
        *(ResidualLayer(width, rank.device) for width in hidden[1:]),
        nn.Linear(hidden[-1], last, device=rank.device),
    )


def _samples(rank: Rank[Settings]) -> tuple[Samples, Samples]:
    """This rank's part of the batch, and samples that are never trained on."""
    settings = rank.settings
    with rank.phase("samples"):
        whole = _drawn(rank, settings.batch_size, rank.seed)
        own = _on_device(rank, shard_of(rank, whole))
        return own, _on_device(rank, _drawn(rank, settings.num_validation_samples, rank.seed + 1))


def _drawn(rank: Rank[Settings], num_samples: int, seed: int) -> Samples:
    """Samples whose label says which of their first features is the largest.

    Drawn cheaply: the teacher of the other experiments would need more memory than a quarter of
    the activations.
    """
    source = torch.Generator().manual_seed(seed)
    features = 2 * torch.rand(num_samples, rank.settings.num_features, generator=source) - 1
    return Samples(features, features[:, : rank.settings.num_classes].argmax(1))


def _on_device(rank: Rank[Settings], samples: Samples) -> Samples:
    """A copy on this rank's device, so that the whole batch it was cut from can be freed."""
    features, labels = (
        samples.features.clone().to(rank.device),
        samples.labels.clone().to(rank.device),
    )
    rank.inputs(features, labels)
    return Samples(features, labels)


STRATEGIES = {"single": train, "split": train, "microbatches": train}

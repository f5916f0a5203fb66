"""Each rank goes backward from the loss on its own samples; weighted gradients are summed."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from runners.experiments.batch_parts import Settings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.training.steps import (
    Tally,
    batch_of,
    forward_backward,
    mlp_for,
    optimizer_for,
    scaled_lesson,
    validate,
)
from runners.training.teacher import Lesson, Samples


def parts(rank: Rank[Settings]) -> None:
    """Train on this rank's part of every batch; one device has the whole of it."""
    settings = rank.settings
    lesson = scaled_lesson(rank)
    model = mlp_for(rank)
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    rank.outcome.start_parameter_digest = parameter_digest(model.parameters())
    if not rank.is_metered:
        _compare(rank, model, _batch(rank, lesson, 0))
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(settings.num_batches):
            own = _part(rank, _batch(rank, lesson, index))
            _step(rank, model, optimizer, own, tally)
            rank.count_samples(len(own.labels))
        _report(rank, epoch, tally, model, lesson)


def _step(
    rank: Rank[Settings],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    own: Samples,
    tally: Tally,
) -> None:
    """Forward, loss and backward on this rank's samples; combine; update."""
    logits, loss = forward_backward(model, own)
    with rank.phase("combine", computes=False):
        _combine(rank, model)
    optimizer.step()
    optimizer.zero_grad()
    tally.add(loss.item(), logits, own.labels)


def _combine(rank: Rank[Settings], model: nn.Module) -> Tensor:
    """Add up the ranks' gradients, each times its weight, in place."""
    combined = parameters_to_vector(_gradients(model)) * _weight(rank)
    if rank.world_size > 1:
        dist.all_reduce(combined)
    vector_to_parameters(combined, _gradients(model))
    return combined


def _weight(rank: Rank[Settings]) -> float:
    """What this rank's gradient, that of a mean over its own samples, counts in the sum."""
    sizes = rank.settings.samples_by_rank
    weights = {
        "by_samples": sizes[rank.rank] / sum(sizes),
        "by_rank": 1 / len(sizes),
        "none": 1.0,
    }
    return weights[rank.settings.weights]


def _gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def _batch(rank: Rank[Settings], lesson: Lesson, index: int) -> Samples:
    """One batch of all ranks; sorted by label, the classes that come last fall to the last rank."""
    batch = batch_of(lesson.training, index, rank.settings.batch_size)
    if rank.settings.order == "by_label":
        return batch.take(batch.labels.argsort(stable=True))
    return batch


def _part(rank: Rank[Settings], batch: Samples) -> Samples:
    """This rank's samples of a batch."""
    sizes = rank.settings.samples_by_rank
    start = sum(sizes[: rank.rank])
    return batch.take(slice(start, start + sizes[rank.rank]))


def _compare(rank: Rank[Settings], model: nn.Module, batch: Samples) -> None:
    """Compare the combined gradient of the first batch with that of the batch as a whole."""
    own = _part(rank, batch)
    nn.functional.cross_entropy(model(own.features), own.labels).backward()
    mine = parameters_to_vector(_gradients(model)).clone()
    with rank.predict("gradient", "sum the ranks' weighted gradients", mine) as out:
        combined = _combine(rank, model).clone()
        out(combined)
    model.zero_grad()
    nn.functional.cross_entropy(model(batch.features), batch.labels).backward()
    whole = parameters_to_vector(_gradients(model))
    facts = {
        "length_ratio": (combined.norm() / whole.norm()).item(),
        "relative_distance": ((combined - whole).norm() / whole.norm()).item(),
        "own_relative_distance": ((mine - whole).norm() / whole.norm()).item(),
    }
    with rank.predict(
        "whole_gradient", "backward on the whole batch, for comparison", batch.features, dict(facts)
    ) as out:
        out(whole)
    model.zero_grad()


def _report(
    rank: Rank[Settings], epoch: int, tally: Tally, model: nn.Module, lesson: Lesson
) -> None:
    """Every rank gives the loss over its own samples; rank 0 grades the model and prints."""
    loss, accuracy, count = tally.seen()
    grades = rank.rank == 0 and not rank.is_metered
    graded = validate(model, lesson.validation) if grades else None
    rank.epoch(
        epoch,
        loss=loss,
        accuracy=accuracy,
        num_samples=count,
        validation=graded,
        parameters=model.parameters(),
    )
    if graded is not None:
        print(f"epoch {epoch}: validation loss {graded[1]:.4f}, accuracy {graded[2]:.3f}")


STRATEGIES = {"parts": parts}

"""Two ranks share every batch: scatter, forward, gather, loss, scatter, backward, all_reduce."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runners.experiments.batch_split import Settings
from runners.experiments.batch_split.shown import follow, report, shown
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.training.networks import flat, flat_gradient
from runners.training.steps import (
    Tally,
    batch_of,
    mlp_for,
    optimizer_for,
    scaled_lesson,
    train_epoch,
)
from runners.training.teacher import Lesson, Samples


def split(rank: Rank[Settings]) -> None:
    """Two ranks share every batch; rank 0 scatters samples and gathers logits."""
    settings = rank.settings
    lesson, model, optimizer = _prepared(rank)
    if rank.rank == 0:
        shape = (settings.num_batches, settings.batch_size, settings.num_features)
        whole = lesson.training.features
        with rank.stage("load", "split the samples into batches", whole) as out:
            out(whole.view(shape))
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(settings.num_batches):
            samples = batch_of(lesson.training, index, settings.batch_size)
            _split_step(rank, model, optimizer, samples, tally)
            rank.count_samples(settings.num_samples_per_rank)
        report(rank, epoch, tally.seen() if rank.rank == 0 else None, model, lesson)
    if not rank.is_metered:
        follow(rank, model, lesson)


def _split_step(
    rank: Rank[Settings],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: Samples,
    tally: Tally,
) -> None:
    """Scatter, forward, gather, loss on the whole, scatter back, backward, combine, update."""
    own_shape = (rank.settings.num_samples_per_rank, samples.features.shape[1])
    with shown(rank, "scatter", samples.features) as out:
        own = torch.empty(own_shape, device=rank.device)
        dist.scatter(own, _parts(rank, samples.features))
        out(own)
    with shown(rank, "forward", own) as out:
        logits = model(own)
        out(logits)
    with shown(rank, "gather", logits) as out:
        gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
        dist.gather(logits.detach().contiguous(), gathered if rank.rank == 0 else None)
        if rank.rank == 0:
            out(torch.cat(gathered))
    gradients = _whole_loss(rank, gathered, samples.labels, tally) if rank.rank == 0 else None
    gradient = torch.empty_like(logits)
    with shown(rank, "scatter_back", gradients) as out:
        dist.scatter(gradient, _parts(rank, gradients))
        out(gradient)
    with shown(rank, "backward", gradient) as out:
        logits.backward(gradient)
        own_gradients = flat_gradient(model)
        out(own_gradients)
    with rank.stage("combine", "sum the ranks' gradients, then update", own_gradients) as out:
        with rank.phase("combine", computes=False):
            dist.all_reduce(own_gradients)
            _put_gradients(model, own_gradients)
        optimizer.step()
        optimizer.zero_grad()
        out(flat(model))


def _parts(rank: Rank[Settings], whole: Tensor | None) -> list[Tensor] | None:
    """What rank 0 scatters; the others bring nothing."""
    if rank.rank or whole is None:
        return None
    return [part.contiguous() for part in whole.chunk(rank.world_size)]


def _whole_loss(
    rank: Rank[Settings], gathered: list[Tensor], labels: Tensor, tally: Tally
) -> Tensor | None:
    """Take the loss over the whole batch; its gradient with respect to the logits."""
    logits = torch.cat(gathered).requires_grad_()
    with shown(rank, "loss", logits) as out:
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        tally.add(loss.item(), logits, labels)
        assert logits.grad is not None
        out(logits.grad)
    return logits.grad


def _put_gradients(model: nn.Module, combined: Tensor) -> None:
    """Give each parameter its part of the combined gradients."""
    parameters = list(model.parameters())
    parts = combined.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device takes every batch whole."""
    lesson, model, optimizer = _prepared(rank)
    for epoch in rank.epochs(rank.settings.num_epochs):
        seen = train_epoch(rank, model, optimizer, lesson.training, rank.settings.batch_size)
        report(rank, epoch, seen, model, lesson)


def _prepared(rank: Rank[Settings]) -> tuple[Lesson, nn.Module, torch.optim.Optimizer]:
    """The samples, the same parameters on every rank, and what updates them."""
    lesson = scaled_lesson(rank)
    model = mlp_for(rank)
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    rank.outcome.start_parameter_digest = parameter_digest(model.parameters())
    return lesson, model, optimizer


STRATEGIES = {"split": split, "single": single}

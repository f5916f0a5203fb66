"""One replica a rank, its gradients averaged by DDP; the same without averaging; and one device."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.ddp import Settings
from runners.experiments.ddp.shown import compare, follow, show_stages
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.training.networks import description, flat, mlp
from runners.training.steps import lesson_for, optimizer_for, shard_of, train_epoch, validate
from runners.training.teacher import Lesson, Samples, Scaling


def ddp(rank: Rank[Settings]) -> None:
    """One replica a rank; DDP averages gradients in every backward pass."""
    training, validation = _prepared(rank)
    model = _model(rank)
    wrap = "broadcast the parameters of rank zero to every replica"
    before = flat(model)
    with rank.phase("wrap"), rank.stage("wrap", wrap, before, everywhere=True) as out:
        replica = DistributedDataParallel(model)
        out(flat(model))
    _train(rank, replica, training, validation)
    if not rank.is_metered:
        compare(rank, replica.module, validation)
        show_stages(rank, replica, training, validation)
        follow(rank, replica, optimizer_for(rank, replica), training)


def no_sync(rank: Rank[Settings]) -> None:
    """Replicas start equal and never communicate a gradient."""
    training, validation = _prepared(rank)
    model = _model(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    with replica.no_sync():
        _train(rank, replica, training, validation)
    if not rank.is_metered:
        compare(rank, replica.module, validation)


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device, the global batch, the same samples in the same order."""
    training, validation = _prepared(rank)
    _train(rank, _model(rank), training, validation)


def _model(rank: Rank[Settings]) -> nn.Module:
    """A replica from a seed of this rank's own, as careless scripts build it."""
    settings = rank.settings
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    dtype = getattr(torch, settings.dtype)
    torch.manual_seed(rank.seed + rank.rank)
    rank.describe(description(widths, [range(rank.world_size)] * 2, dtype))
    model = mlp(widths, dtype=dtype, device=rank.device)
    if rank.world_size > 1:
        rank.outcome.first_parameter_digest = parameter_digest(model.parameters())
    return model


def _train(rank: Rank[Settings], model: nn.Module, training: Samples, validation: Samples) -> None:
    """Train to the end; each replica reports its own loss and digest of every epoch."""
    settings = rank.settings
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    rank.outcome.start_parameter_digest = parameter_digest(model.parameters())
    for epoch in rank.epochs(settings.num_epochs):
        loss, accuracy, count = train_epoch(rank, model, optimizer, training, settings.batch_size)
        graded = validate(model, validation) if rank.rank == 0 and not rank.is_metered else None
        rank.epoch(
            epoch,
            loss=loss,
            accuracy=accuracy,
            num_samples=count,
            validation=graded,
            parameters=model.parameters(),
        )
        if rank.rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f} on rank 0")


def _prepared(rank: Rank[Settings]) -> tuple[Samples, Samples]:
    """This rank's samples, scaled, and the validation samples scaled as rank 0 would."""
    settings = rank.settings
    lesson = _lesson(rank)
    whole = lesson.training.features
    shards = shard_of(rank, lesson.training)
    with rank.stage("load", "take this rank's shard of the samples", whole, everywhere=True) as out:
        out(shards.features)
    per_shard = settings.scaling == "per_shard"
    scaling = Scaling.of(shards.features if per_shard else whole)
    whose = "its shard's" if per_shard else "all samples'"
    operation = f"scale each feature by {whose} minimum and maximum"
    with rank.stage("scale", operation, shards.features, everywhere=True) as out:
        scaled = scaling.apply(shards.features)
        out(scaled)
    training = Samples(scaled.to(rank.device), shards.labels.to(rank.device))
    if rank.world_size == 1:
        training = _interleave(training, settings.num_shards)
    validation = Samples(
        scaling.apply(lesson.validation.features).to(rank.device),
        lesson.validation.labels.to(rank.device),
    )
    rank.inputs(training.features, training.labels, validation.features, validation.labels)
    return training, validation


def _lesson(rank: Rank[Settings]) -> Lesson:
    lesson = lesson_for(rank)
    if rank.settings.order == "shuffled":
        return lesson
    # Samples as a careless export leaves them: ordered by their first feature.
    order = lesson.training.features[:, 0].argsort(stable=True)
    return Lesson(lesson.training.take(order), lesson.validation)


def _interleave(samples: Samples, num_shards: int) -> Samples:
    """Reorder samples so that each global batch holds one batch of every shard."""
    num_samples = len(samples.labels)
    shards = torch.arange(num_samples).view(num_shards, -1)
    return samples.take(shards.T.reshape(-1))


STRATEGIES = {"single": single, "ddp": ddp, "no_sync": no_sync}

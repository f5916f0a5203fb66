"""The samples of `large_model`, which ranks draw whole and keep as few of as they train on."""

from __future__ import annotations

import torch
from torch import Tensor

from runners.experiments.large_model import NUM_CLASSES, Settings
from runners.ranks.rank import Rank
from runners.training.teacher import Lesson, Samples, Scaling, teach


def training_batch(rank: Rank[Settings], part: int) -> tuple[Tensor, Tensor]:
    """This rank's own samples, a copy, so that the other ranks' samples are freed.

    Returns:
        Features (num_samples, widths[0]) and labels (num_samples,).
    """
    size = rank.settings.num_samples
    with rank.phase("samples"):
        own = _lesson(rank).training.take(torch.arange(part * size, (part + 1) * size))
        features, labels = own.features.to(rank.device), own.labels.to(rank.device)
        rank.inputs(features, labels)
    return features, labels


def held_out(rank: Rank[Settings]) -> Samples:
    """The validation samples, drawn when they are needed: training keeps no memory for them."""
    samples = _lesson(rank).validation
    return Samples(samples.features.to(rank.device), samples.labels.to(rank.device))


def _lesson(rank: Rank[Settings]) -> Lesson:
    """Samples of one teacher for all ranks, scaled; what else is drawn is freed at once."""
    settings = rank.settings
    lesson = teach(
        rank.seed,
        num_samples=settings.num_samples * settings.num_data_ranks,
        num_validation_samples=settings.num_validation_samples,
        num_features=settings.widths[0],
        num_classes=NUM_CLASSES,
        temperature=settings.teacher_temperature,
    )
    scaling = Scaling.of(lesson.training.features)
    return Lesson(
        Samples(2 * scaling.apply(lesson.training.features) - 1, lesson.training.labels),
        Samples(2 * scaling.apply(lesson.validation.features) - 1, lesson.validation.labels),
    )

"""The samples of `large_model`, which ranks draw whole and keep as few of as they train on."""

from __future__ import annotations

import torch
from torch import Tensor

from runners.experiments.large_model import NUM_CLASSES, Settings
from runners.ranks.rank import Rank
from runners.training.teacher import Lesson, Rows, Scaling, teach


def training_batch(rank: Rank[Settings], part: int) -> tuple[Tensor, Tensor]:
    """This rank's own samples, a copy, so that the other ranks' samples are freed.

    Returns:
        Features (num_rows, widths[0]) and labels (num_rows,).
    """
    size = rank.settings.num_rows
    with rank.phase("rows"):
        own = _lesson(rank).training.take(torch.arange(part * size, (part + 1) * size))
        features, labels = own.features.to(rank.device), own.labels.to(rank.device)
        rank.rows(features, labels)
    return features, labels


def held_out(rank: Rank[Settings]) -> Rows:
    """The validation samples, drawn when they are needed: training keeps no memory for them."""
    rows = _lesson(rank).validation
    return Rows(rows.features.to(rank.device), rows.labels.to(rank.device))


def _lesson(rank: Rank[Settings]) -> Lesson:
    """Samples of one teacher for all ranks, scaled; what else is drawn is freed at once."""
    settings = rank.settings
    lesson = teach(
        rank.seed,
        num_rows=settings.num_rows * settings.num_data_ranks,
        num_validation_rows=settings.num_validation_rows,
        num_features=settings.widths[0],
        num_classes=NUM_CLASSES,
        temperature=settings.teacher_temperature,
    )
    scaling = Scaling.of(lesson.training.features)
    return Lesson(
        Rows(2 * scaling.apply(lesson.training.features) - 1, lesson.training.labels),
        Rows(2 * scaling.apply(lesson.validation.features) - 1, lesson.validation.labels),
    )

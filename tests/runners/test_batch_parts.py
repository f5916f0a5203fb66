"""Parts of a batch against independent oracle: a plain loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runners.experiments import batch_parts
from runners.traces.records import Run
from runners.training.networks import mlp
from runners.training.teacher import Scaling, teach

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]


def test_parts_that_weigh_alike_give_the_mean_of_their_means(run: Measure) -> None:
    settings = batch_parts.Settings()
    lesson = teach(
        42,
        num_samples=10000,
        num_validation_samples=1000,
        num_features=20,
        num_classes=10,
        temperature=settings.teacher_temperature,
    )
    features = Scaling.of(lesson.training.features).apply(lesson.training.features)[:100]
    labels = lesson.training.labels[:100]
    order = labels.argsort(stable=True)
    torch.manual_seed(42)
    model = mlp((20, 128, 10))
    for part in (order[:80], order[80:]):
        (nn.functional.cross_entropy(model(features[part]), labels[part]) / 2).backward()
    expected = next(model.parameters()).grad
    assert expected is not None
    shown = run("batch_parts", "unequal_by_rank").prediction[0].values
    assert shown == pytest.approx(expected.flatten()[: len(shown)].tolist(), rel=1e-4)

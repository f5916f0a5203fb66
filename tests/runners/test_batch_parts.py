"""Parts of a batch against independent oracles: the whole batch, a larger rate, a naive loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from runners.experiments import batch_parts
from runners.traces.records import Run
from runners.training.networks import mlp
from runners.training.teacher import Scaling, teach

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]


def facts(run: Run) -> dict[str, float]:
    return dict(run.prediction[-1].facts)  # type: ignore[arg-type]


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
    told = run("batch_parts", "unequal_by_rank").prediction[0].values
    assert told == pytest.approx(expected.flatten()[: len(told)].tolist(), rel=1e-4)


def test_a_batch_is_cut_as_the_settings_say_or_refused() -> None:
    plan = batch_parts.RUNS["unequal"]
    assert plan.settings.samples_by_rank == [80, 20]
    assert batch_parts.RUNS["whole"].settings.samples_by_rank == [100]
    four = replace(plan, world_size=4, settings=plan.settings.changed({"num_last_samples": 10}))
    assert four.settings.samples_by_rank == [30, 30, 30, 10]
    with pytest.raises(ValueError, match="cannot leave 100"):
        replace(plan, settings=plan.settings.changed({"num_last_samples": 100}))

"""Batches that grow with the ranks, against one process that takes the large batch itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runners.traces.records import Run
from runners.training.networks import mlp
from runners.training.teacher import Scaling, teach

Measure = Callable[[str, str], Run]


def naive(ranks: int, rates: list[float]) -> float:
    """Validation loss of one process that takes all ranks' batches at once, at these rates."""
    lesson = teach(
        42,
        num_samples=6400,
        num_validation_samples=1000,
        num_features=10,
        num_classes=4,
        temperature=0.15,
        dtype=torch.float64,
    )
    scaling = Scaling.of(lesson.training.features)
    features, labels = scaling.apply(lesson.training.features), lesson.training.labels
    torch.manual_seed(42)
    model = mlp((10, 64, 4), dtype=torch.float64)
    moments = [torch.zeros_like(p) for p in model.parameters()]
    size = 6400 // ranks
    for index, rate in enumerate(rates):
        turn = index % (size // 25)
        rows = torch.cat([r * size + turn * 25 + torch.arange(25) for r in range(ranks)])
        loss = nn.functional.cross_entropy(model(features[rows]), labels[rows])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, moment, gradient in zip(
                model.parameters(), moments, gradients, strict=True
            ):
                moment.mul_(0.9).add_(gradient)
                parameter.sub_(moment, alpha=rate)
    with torch.no_grad():
        held_out = model(scaling.apply(lesson.validation.features))
        return nn.functional.cross_entropy(held_out, lesson.validation.labels).item()


@pytest.mark.ranks
def test_a_warm_up_over_ranks_is_one_process_with_rising_rates(run: Measure) -> None:
    warmed = run("batch_and_rate", "warmed")
    rates = [0.05 + (0.2 - 0.05) * min(1.0, index / 32) for index in range(128)]
    assert warmed.validation is not None
    assert warmed.validation.loss == pytest.approx(naive(4, rates), rel=1e-7)
    measures = warmed.ranks[0].measures
    assert (measures["first_rate"], measures["last_rate"]) == (0.05, pytest.approx(0.2))
    assert measures["validation_losses"][-1] == pytest.approx(warmed.validation.loss)  # type: ignore[index]
    assert len(measures["validation_losses"]) == 8

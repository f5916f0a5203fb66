"""Replicas that never synchronise, against a loop of plain PyTorch in one process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runners.traces.records import PredictionStep, Run
from runners.training.teacher import Scaling, teach

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]


def compared(run: Run) -> PredictionStep:
    """Where a run compares its replicas."""
    (step,) = [s for s in run.prediction if s.name == "compare"]
    return step


def alone(shard: int) -> tuple[nn.Sequential, tuple[torch.Tensor, torch.Tensor]]:
    """The replica of one shard, trained by a loop that knows of no other; and validation rows."""
    lesson = teach(
        42, num_samples=10000, num_validation_samples=1000, num_features=10, num_classes=4,
        temperature=0.15,
    )  # fmt: skip
    scaling = Scaling.of(lesson.training.features)
    rows = scaling.apply(lesson.training.features)[shard * 2500 : (shard + 1) * 2500]
    labels = lesson.training.labels[shard * 2500 : (shard + 1) * 2500]
    torch.manual_seed(42)  # rank 0's, from which DDP starts every replica
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        for start in range(0, 2500, 25):
            batch = slice(start, start + 25)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(rows[batch]), labels[batch]).backward()
            optimizer.step()
    return model, (scaling.apply(lesson.validation.features), lesson.validation.labels)


@torch.no_grad()
def accuracy(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> float:
    return (model(rows).argmax(1) == labels).double().mean().item()


def test_unsynchronised_replicas_are_what_each_shard_alone_would_teach(run: Measure) -> None:
    facts = compared(run("ddp", "no_sync")).facts
    models = []
    for shard in (0, 3):
        model, held_out = alone(shard)
        models.append(nn.utils.parameters_to_vector(model.parameters()).detach())
        assert facts[f"rank_{shard}_validation_accuracy"] == pytest.approx(
            accuracy(model, *held_out), abs=0.005
        )
    apart = models[1] - models[0]
    assert facts["rank_3_largest_difference"] == pytest.approx(apart.abs().max().item(), rel=1e-3)
    assert facts["rank_3_relative_distance"] == pytest.approx(
        (apart.norm() / models[0].norm()).item(), rel=1e-3
    )

"""Ways of agreeing against oracles: replicas in one process, and the roots of a recurrence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners.experiments.synchronization import RUNS
from runners.traces.records import Run
from runners.training.networks import mlp
from runners.training.teacher import Samples, Scaling, teach

Measure = Callable[[str, str], Run]
RANKS, ROWS, BATCH = 2, 6400, 50


def shards() -> list[Samples]:
    """The ranks' samples, as the experiment's settings ask for them."""
    lesson = teach(
        42,
        num_samples=ROWS,
        num_validation_samples=1000,
        num_features=10,
        num_classes=4,
        temperature=0.15,
        dtype=torch.float64,
    )
    rows = lesson.training
    rows = Samples(Scaling.of(rows.features).apply(rows.features), rows.labels)
    size = ROWS // RANKS
    return [rows.take(slice(r * size, (r + 1) * size)) for r in range(RANKS)]


def model() -> nn.Sequential:
    """The model of every rank before its first step."""
    torch.manual_seed(42)
    return mlp((10, 64, 4), dtype=torch.float64)


def gradients(model: nn.Module, rows: Samples, index: int) -> tuple[float, list[Tensor]]:
    """Loss and gradients of one rank's batch."""
    turn = index % (len(rows.labels) // BATCH)
    batch = rows.take(slice(turn * BATCH, (turn + 1) * BATCH))
    loss = nn.functional.cross_entropy(model(batch.features), batch.labels)
    return loss.item(), list(torch.autograd.grad(loss, list(model.parameters())))


@torch.no_grad()
def step(model: nn.Module, of: list[Tensor]) -> None:
    """Plain SGD."""
    for parameter, gradient in zip(model.parameters(), of, strict=True):
        parameter.sub_(gradient, alpha=0.2)


@pytest.mark.ranks
def test_local_sgd_over_ranks_is_local_sgd_in_one_process(run: Measure) -> None:
    rows, replicas, losses = shards(), [model() for _ in range(RANKS)], []
    for index in range(128):
        seen = [gradients(m, r, index) for m, r in zip(replicas, rows, strict=True)]
        losses.append(sum(loss for loss, _ in seen) / RANKS)
        for replica, (_, of) in zip(replicas, seen, strict=True):
            step(replica, of)
        if (index + 1) % 8 == 0:
            with torch.no_grad():
                for same in zip(*(m.parameters() for m in replicas), strict=True):
                    mean = torch.stack([p.detach() for p in same]).mean(0)
                    for parameter in same:
                        parameter.copy_(mean)
    assert run("synchronization", "local_8").step_losses == pytest.approx(losses, rel=1e-9)


@pytest.mark.ranks
def test_a_gradient_that_comes_late_is_that_of_so_many_steps_before(run: Measure) -> None:
    rows, one, losses = shards(), model(), []  # one model, for all replicas are equal
    old: list[list[Tensor]] = []
    for index in range(128):
        seen = [gradients(one, r, index) for r in rows]
        losses.append(sum(loss for loss, _ in seen) / RANKS)
        own = zip(*(of for _, of in seen), strict=True)
        old.append([torch.stack(same).mean(0) for same in own])
        if len(old) > 4:
            step(one, old.pop(0))
    assert run("synchronization", "stale_4").step_losses == pytest.approx(losses, rel=1e-9)


def test_the_largest_rate_is_where_a_root_of_the_recurrence_leaves_the_unit_circle() -> None:
    def largest_root(delay: int, rate: float) -> float:
        # x ← x − rate · x of `delay` steps before: z^(delay+1) − z^delay + rate = 0.
        polynomial = [1.0, -1.0, *[0.0] * (delay - 1), rate] if delay else [1.0, rate - 1.0]
        return float(np.abs(np.roots(polynomial)).max())

    settings = RUNS["parabola"].settings
    for delay, rate in zip(settings.delays, settings.closed_forms()["largest_rates"], strict=True):
        assert largest_root(delay, rate * 0.99) < 1 < largest_root(delay, rate * 1.01)

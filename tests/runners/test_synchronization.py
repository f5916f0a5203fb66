"""Ways of agreeing against oracles: replicas in one process, and the roots of a recurrence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners.experiments.synchronization import RUNS, largest_rate
from runners.traces.records import Run
from runners.traces.schema import Setting
from runners.training.networks import mlp
from runners.training.teacher import Samples, Scaling, teach

Measure = Callable[[str, str], Run]
RANKS, ROWS, BATCH = 2, 6400, 50


def shards() -> list[Samples]:
    """The ranks' rows, as the experiment's settings ask for them."""
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


def models() -> list[nn.Sequential]:
    """Equal models, one a rank."""
    made = []
    for _ in range(RANKS):
        torch.manual_seed(42)
        made.append(mlp((10, 64, 4), dtype=torch.float64))
    return made


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


def naive_local(num_steps: int, between: int) -> list[float]:
    """Mean loss of each step of local SGD, its replicas in one process."""
    rows, replicas, losses = shards(), models(), []
    for index in range(num_steps):
        seen = [gradients(m, r, index) for m, r in zip(replicas, rows, strict=True)]
        losses.append(sum(loss for loss, _ in seen) / RANKS)
        for model, (_, of) in zip(replicas, seen, strict=True):
            step(model, of)
        if (index + 1) % between == 0:
            with torch.no_grad():
                for same in zip(*(m.parameters() for m in replicas), strict=True):
                    mean = torch.stack([p.detach() for p in same]).mean(0)
                    for parameter in same:
                        parameter.copy_(mean)
    return losses


def naive_stale(num_steps: int, delay: int) -> list[float]:
    """Mean loss of each step of SGD with old gradients: one model, for all replicas are equal."""
    rows, model, losses = shards(), models()[0], []
    old: list[list[Tensor]] = []
    for index in range(num_steps):
        seen = [gradients(model, r, index) for r in rows]
        losses.append(sum(loss for loss, _ in seen) / RANKS)
        old.append(
            [torch.stack(same).mean(0) for same in zip(*(of for _, of in seen), strict=True)]
        )
        if len(old) > delay:
            step(model, old.pop(0))
    return losses


@pytest.mark.ranks
@pytest.mark.parametrize(("name", "between"), [("local_1", 1), ("local_8", 8)])
def test_local_sgd_over_ranks_is_local_sgd_in_one_process(
    run: Measure, name: str, between: int
) -> None:
    assert run("synchronization", name).step_losses == pytest.approx(
        naive_local(128, between), rel=1e-9
    )


@pytest.mark.ranks
@pytest.mark.parametrize(("name", "delay"), [("stale_0", 0), ("stale_4", 4)])
def test_a_gradient_that_comes_late_is_that_of_so_many_steps_before(
    run: Measure, name: str, delay: int
) -> None:
    assert run("synchronization", name).step_losses == pytest.approx(
        naive_stale(128, delay), rel=1e-9
    )


@pytest.mark.parametrize("delay", [0, 1, 4, 16])
def test_the_largest_rate_is_where_a_root_of_the_recurrence_leaves_the_unit_circle(
    delay: int,
) -> None:
    def largest_root(rate: float) -> float:
        # x ← x − rate · x of `delay` steps before: z^(delay+1) − z^delay + rate = 0.
        polynomial = [1.0, -1.0, *[0.0] * (delay - 1), rate] if delay else [1.0, rate - 1.0]
        return float(np.abs(np.roots(polynomial)).max())

    assert largest_root(largest_rate(delay) * 0.99) < 1 < largest_root(largest_rate(delay) * 1.01)


@pytest.mark.parametrize(
    ("name", "changed", "word"),
    [
        ("local_8", {"steps_between": 7}, "multiple"),
        ("synchronous", {"num_samples": 6401}, "batches"),
        ("synchronous", {"order": "sorted"}, "order"),
        ("parabola", {"delays": [-1]}, "delays"),
    ],
)
def test_what_cannot_be_is_refused(name: str, changed: dict[str, Setting], word: str) -> None:
    plan = RUNS[name]
    with pytest.raises(ValueError, match=word):
        replace(plan, settings=plan.settings.changed(changed))

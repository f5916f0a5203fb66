"""A batch shared by ranks against plain torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runners.traces.records import Run

Measure = Callable[[str, str], Run]


def last_loss(rows: int, num_steps: int, rate: float) -> float:
    """Plain torch, no rank and no recorder: the same network on the same rows."""
    torch.manual_seed(42)
    layers: list[nn.Module] = []
    for index in range(4):
        layers += [nn.ReLU()] * bool(index) + [nn.Linear(320, 320)]
    model = nn.Sequential(*layers)
    source = torch.Generator().manual_seed(42)
    features = torch.randn((rows, 320), generator=source)
    labels = torch.randint(0, 320, (rows,), generator=source)
    loss = torch.zeros(())
    for _ in range(num_steps):
        loss = nn.functional.cross_entropy(model(features), labels)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(rate * gradient)
    return loss.item()


@pytest.mark.ranks
def test_a_batch_dealt_out_to_ranks_teaches_what_plain_torch_learns(run: Measure) -> None:
    measured = run("scaling", "strong_2")
    expected = last_loss(800, num_steps=8, rate=0.1)
    assert measured.epochs[0].loss == pytest.approx(expected, rel=1e-5)
    assert len({r.parameter_digest for r in measured.ranks}) == 1

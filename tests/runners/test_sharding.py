"""Sharding against a plain loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runners.experiments.sharding import Settings, parts
from runners.traces.records import Run
from runners.training.networks import mlp

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]


def test_whole_parameters_are_dealt_out_the_largest_first() -> None:
    assert sorted(parts([7, 5, 4, 3, 1], 2)) == [10, 10]
    assert sorted(parts([9, 1, 1], 2)) == [2, 9]


def plain_loss(num_ranks: int) -> float:
    """The loss of rank 0 at the third step, from a loop without any wrapper over all samples."""
    widths = [512] * 9
    model = mlp(widths)
    source = torch.Generator().manual_seed(42)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-(512**-0.5), 512**-0.5, generator=source)
    batches = []
    for rank in range(num_ranks):
        own = torch.Generator().manual_seed(43 + rank)
        batches.append(
            (torch.randn((4, 512), generator=own), torch.randint(0, 512, (4,), generator=own))
        )
    update = torch.optim.Adam(model.parameters(), lr=Settings().learning_rate)
    for _ in range(2):
        for features, labels in batches:
            (nn.functional.cross_entropy(model(features), labels) / num_ranks).backward()
        update.step()
        update.zero_grad()
    features, labels = batches[0]
    return nn.functional.cross_entropy(model(features), labels).item()


@pytest.mark.parametrize("name", ["zero_2", "fsdp_2"])
def test_every_way_trains_as_a_plain_loop_over_all_samples_does(run: Measure, name: str) -> None:
    shown = run("sharding", name).ranks[0].measures["loss_at_third_step"]
    assert shown == pytest.approx(plain_loss(2), rel=1e-4)

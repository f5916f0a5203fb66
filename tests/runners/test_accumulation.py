"""The weights of unequal parts, and refused settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from runners.experiments.accumulation import RUNS
from runners.experiments.accumulation.unequal import Part, gradient_of, joined
from runners.traces.schema import Setting


def test_the_weighted_sum_of_parts_is_the_gradient_of_a_sum_of_losses() -> None:
    source = torch.Generator().manual_seed(3)
    model = nn.Linear(3, 4).double()
    parts = [
        Part(
            torch.randn(size, 3, generator=source, dtype=torch.float64),
            torch.randint(0, 4, (size,), generator=source),
            size,
        )
        for size in (1, 5, 2)
    ]
    found = gradient_of(model, [(part, part.count / 8) for part in parts])
    whole = joined(parts)
    summed = nn.functional.cross_entropy(model(whole.inputs), whole.targets, reduction="sum")
    wanted = torch.autograd.grad(summed / 8, list(model.parameters()))
    torch.testing.assert_close(found, torch.cat([g.reshape(-1) for g in wanted]))


@pytest.mark.parametrize(
    ("run_name", "changed", "said"),
    [
        ("accumulated", {"num_microbatches": 3}, "cannot be taken in 3 microbatches"),
        ("samples", {"task": "words"}, "task must be samples or tokens"),
        ("samples", {"parts": [1, 2, 3]}, "as many for each of 2 ranks"),
        ("batch_norm", {"parts": [1, 2]}, "at least 2"),
        ("tokens", {"norm": "batch"}, "norm must be none"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(
    run_name: str, changed: dict[str, Setting], said: str
) -> None:
    plan = RUNS[run_name]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))

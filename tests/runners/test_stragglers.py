"""Slow ranks against torch's own sums and maxima."""

import pytest
import torch

from proofbook.runners.core.declared.experiment import find


@pytest.mark.parametrize(("name", "between"), [("sometimes", 1), ("sometimes_local", 8)])
def test_a_training_should_take_the_sum_of_what_each_stretch_waits_for(name, between):
    settings = find("stragglers").runs[name].settings
    stretches = torch.tensor(settings.lengths()).unflatten(1, (-1, between)).sum(2)  # by rank
    total = stretches.amax(0).sum().item()
    assert settings.closed_forms()["expected_seconds"] == pytest.approx(total)

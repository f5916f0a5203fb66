"""Primitives: what a machine computes and communicates in how long."""

from types import SimpleNamespace

import pytest
from torch.utils.flop_counter import FlopCounterMode

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.experiments.primitives import LayerSettings, _layer


@pytest.mark.ranks
def test_a_larger_message_takes_longer_and_the_products_of_a_layer_are_counted(launcher):
    primitives = find("primitives")
    result = launcher.run_pass(primitives, "communicate_2", "timed")
    seconds = result.outcomes[0].measured_seconds
    assert min(seconds["all_reduce_16777216"]) > min(seconds["all_reduce_4096"])
    result = launcher.run_pass(primitives, "compute_1", "timed")
    with FlopCounterMode(display=False) as counter:
        _layer(SimpleNamespace(device="cpu"), LayerSettings())()
    assert result.outcomes[0].measures["num_flops"] == counter.get_total_flops()

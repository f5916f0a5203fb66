"""Primitives: what a machine computes and communicates in how long, and the few rates of it."""

from types import SimpleNamespace

import pytest
from torch.utils.flop_counter import FlopCounterMode

from runners.declared.experiment import PRIMITIVES, find
from runners.primitives import measured
from runners.primitives.experiment import _layer
from runners.primitives.measured import ROWS, WIDTH, measure_once, summary
from runners.traces.files import read_primitives
from runners.traces.measured import SampledSeconds


@pytest.mark.ranks
def test_a_larger_message_takes_longer_and_a_person_gets_rates_of_each_kind(launcher):
    """One rank's computing and two ranks' communication."""
    taken = {}
    for run in ("compute_1", "communicate_2"):
        result = launcher.run_pass(find(PRIMITIVES), run, "timed")
        assert result.root_cause is None
        taken |= {n: SampledSeconds.of(s) for n, s in result.outcomes[0].measured_seconds.items()}
    least = {name: min(one.samples) for name, one in taken.items()}
    assert least["all_reduce_2_16777216_seconds"] > least["all_reduce_2_4096_seconds"]
    assert {*summary(taken)} == {
        "matrix_flops_per_second",
        "all_reduce_2_alpha_seconds",
        "all_reduce_2_beta_seconds_per_byte",
    }


def test_alpha_and_beta_are_those_of_the_line_through_a_small_and_a_large_message():
    alpha, beta = 2e-4, 1e-9
    seconds = {
        f"all_reduce_2_{num_bytes}_seconds": SampledSeconds.of([alpha + beta * num_bytes] * 5)
        for num_bytes in (4_096, 16_777_216)
    }
    found = summary(seconds)
    assert found["all_reduce_2_beta_seconds_per_byte"] == pytest.approx(beta)
    assert found["all_reduce_2_alpha_seconds"] == pytest.approx(alpha, rel=0.05)


def test_the_products_are_those_of_a_layer_and_their_rate_counts_each_operation():
    step = _layer(SimpleNamespace(device="cpu"))
    with FlopCounterMode(display=False) as counter:
        step()
    taken = {f"matrix_{ROWS}x{WIDTH}_1_seconds": SampledSeconds.of([1.0] * 5)}
    assert summary(taken) == {"matrix_flops_per_second": counter.get_total_flops()}
    assert counter.get_total_flops() == 3 * 2 * 512 * 256 * 256


def test_a_machine_measures_its_primitives_once(tmp_path, monkeypatch):
    calls = []
    taken = {"matrix_512x256_1_seconds": SampledSeconds.of([1.0] * 5)}
    monkeypatch.setattr(measured, "measured", lambda *_: calls.append(1) or taken)
    for _ in range(2):
        measure_once(None, tmp_path / "some", None)
    assert len(calls) == 1
    assert set(taken) < set(read_primitives(tmp_path / "some").primitives)

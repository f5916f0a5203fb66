"""Primitives: what a machine computes and communicates in how long, and the few rates of it."""

from __future__ import annotations

import pytest

from runners.plans.experiment import PRIMITIVES, find
from runners.primitives import measured
from runners.primitives.measured import measure_once, summary
from runners.primitives.sizes import (
    COLLECTIVES,
    COMMUNICATED_BYTES,
    ELEMENTWISE_BYTES,
    MATRICES,
    needed,
)
from runners.traces import machine
from runners.traces.files import read_primitives
from runners.traces.measured import SampledSeconds


@pytest.mark.ranks
def test_every_primitive_is_measured_and_larger_sizes_take_longer(launcher):
    """One rank's computing and two ranks' reductions."""
    experiment = find(PRIMITIVES)
    taken = {}
    for run in ("compute_1", "communicate_2"):
        result = launcher.run_pass(experiment, run, "timed")
        assert result.root_cause is None
        taken |= {n: sorted(s)[0] for n, s in result.outcomes[0].measured_seconds.items()}
    assert needed() <= set(taken)
    assert {f"{c}_2_{b}_seconds" for c in COLLECTIVES for b in COMMUNICATED_BYTES} <= set(taken)
    few, many = (f"matrix_{r}x{s}_1_seconds" for r, s in (MATRICES[0], MATRICES[-1]))
    assert taken[many] > 10 * taken[few]
    small, large = (
        f"elementwise_{b}_1_seconds" for b in (ELEMENTWISE_BYTES[0], ELEMENTWISE_BYTES[-1])
    )
    assert taken[large] > 10 * taken[small]


def test_alpha_and_beta_are_those_of_the_line_through_a_small_and_a_large_message():
    alpha, beta = 2e-4, 1e-9
    seconds = {
        f"all_reduce_2_{num_bytes}_seconds": SampledSeconds.of([alpha + beta * num_bytes] * 5)
        for num_bytes in (4_096, 16_777_216)
    }
    found = summary(seconds)
    assert found["all_reduce_2_beta_seconds_per_byte"] == pytest.approx(beta)
    assert found["all_reduce_2_alpha_seconds"] == pytest.approx(alpha, rel=0.05)


def test_a_machine_measures_its_primitives_once(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    taken = dict.fromkeys(needed(), SampledSeconds.of([1.0] * 5))
    calls = []

    def counted(*_):
        calls.append(1)
        return taken

    monkeypatch.setattr(measured, "measured", counted)
    where = tmp_path / "some"
    for _ in range(2):
        measure_once(None, where, None)
    assert len(calls) == 1
    found = read_primitives(where)
    assert found.machine == "some"
    assert needed() <= set(found.primitives)

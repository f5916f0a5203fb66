"""Simulations, against real ranks under the judge's meter and against closed forms."""

import os
import time
from collections import Counter
from functools import cache

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from proofbook.runners.closed_forms.steps import ring_bytes
from proofbook.runners.simulate.processes import results
from tests.judged import judged, peaks_of
from tests.processes import python
from tests.runners import wrapped
from tests.runners.wrapped import BATCH, EVEN, NUM_STEPS, RING_VALUES, simulated

OF_DDP_BYTES = 200  # at most, by which its ranks compare shapes and sizes of buckets


def summed(calls):
    """How often each operation is called, and its bytes; of calls with both."""
    counts, num_bytes = Counter(), Counter()
    for operation, count, size in calls:
        counts[operation] += count
        num_bytes[operation] += size
    return counts, num_bytes


@cache
def logs_of(program, ranks):
    """What each simulated rank logged, once for all tests."""
    return simulated(program, ranks)


def calls_of(log):
    return summed((one.operation, one.count, one.bytes) for one in log.calls)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("program", "ranks"),
    [(wrapped.ddp, 2), (wrapped.accumulated, 2), (wrapped.recomputed, 2), (wrapped.uneven, 3),
     (wrapped.hsdp, 4), (wrapped.ring, 4)],
)  # fmt: skip
def test_peaks_and_payloads_are_those_of_real_ranks(program, ranks):
    seen = judged(wrapped.seen_by_operations, ranks, program)
    logs = logs_of(program, ranks)
    assert [one.peak_bytes for one in logs] == pytest.approx(peaks_of(seen), rel=0.01)
    # Before its first step DDP broadcasts the model, which no simulation does.
    large = [
        [call for call in one.calls
         if call.num_bytes > OF_DDP_BYTES and call.operation != "broadcast"]
        for one in seen
    ]  # fmt: skip
    called = [summed((one.operation, 1, one.num_bytes) for one in calls) for calls in large]
    assert [calls_of(one) for one in logs] == called
    if program is wrapped.ring:
        sent = ring_bytes(4 * RING_VALUES, ranks)
        assert {calls_of(one)[1]["send"] for one in logs} == {sent}


@pytest.mark.ranks
def test_collectives_are_known_by_the_axis_of_the_mesh_that_carries_them():
    calls = logs_of(wrapped.hsdp, 4)[0].calls
    assert {(one.operation, one.axis, one.num_ranks) for one in calls} == {
        ("all_gather", "shard", 2),
        ("reduce_scatter", "shard", 2),
        ("all_reduce", "replicate", 2),
    }


@pytest.mark.ranks
def test_flops_are_those_of_torchs_own_counter():
    with FlopCounterMode(display=False) as counter:
        wrapped.layers(EVEN)(torch.randn(BATCH, EVEN[0])).square().mean().backward()
    flops = logs_of(wrapped.ddp, 2)[0].flops
    assert flops == 2 * NUM_STEPS * counter.get_total_flops()


def test_results_are_in_the_order_of_the_jobs():
    assert results(_slept, [0.3, 0.0, 0.1], max, 3, "slept") == [0.3, 0.0, 0.1]


def _slept(seconds):
    time.sleep(seconds)
    return seconds


def test_a_simulation_sees_no_accelerator_and_the_command_still_does(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert results(os.getenv, ["CUDA_VISIBLE_DEVICES"], max, 1, "looked") == [""]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


# A torch that has a device forbids backward passes in processes forked after one. Builds for CUDA
# have a device under fake tensors, with or without a GPU; a backend in Python gives one to any.
WITH_A_DEVICE = """
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretended")
"""
SIMULATED = """
from proofbook.companions.planner.simulated.cache import answers
from tests.runners.questions import asked
from tests.runners.wrapped import ddp, simulated

(log,), (answer,) = simulated(ddp, 1), answers([asked("fsdp", 2)])
print(isinstance(log, str), answer.reason)
"""


@pytest.mark.ranks
def test_programs_and_plans_are_simulated_by_a_torch_that_has_a_device():
    done = python("-W", "ignore", "-c", WITH_A_DEVICE + SIMULATED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False None"]

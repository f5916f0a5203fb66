"""Simulations, against real ranks under the judge's meter and against closed forms."""

from collections import Counter
from functools import cache

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from proofbook.runners.closed_forms.steps import ring_bytes
from tests.judged import judged, peaks_of
from tests.runners import wrapped
from tests.runners.wrapped import BATCH, EVEN, NUM_STEPS, RING_VALUES, simulated

pytestmark = pytest.mark.ranks
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


@pytest.mark.parametrize(
    ("program", "ranks"),
    [(wrapped.ddp, 2), (wrapped.accumulated, 2), (wrapped.recomputed, 2), (wrapped.uneven, 3),
     (wrapped.hsdp, 4), (wrapped.ring, 4)],
)  # fmt: skip
def test_peaks_and_payloads_are_those_of_real_ranks(program, ranks):
    seen, logs = judged(program, ranks), logs_of(program, ranks)
    assert [one.peak_bytes for one in logs] == pytest.approx(peaks_of(seen), rel=0.01)
    large = [[call for call in one.calls if call.num_bytes > OF_DDP_BYTES] for one in seen]
    called = [summed((one.operation, 1, one.num_bytes) for one in calls) for calls in large]
    assert [calls_of(one) for one in logs] == called
    if program is wrapped.ring:
        sent = ring_bytes(4 * RING_VALUES, ranks)
        assert {calls_of(one)[1]["send"] for one in logs} == {sent}


def test_collectives_are_known_by_the_axis_of_the_mesh_that_carries_them():
    calls = logs_of(wrapped.hsdp, 4)[0].calls
    assert {(one.operation, one.axis, one.num_ranks) for one in calls} == {
        ("all_gather", "shard", 2),
        ("reduce_scatter", "shard", 2),
        ("all_reduce", "replicate", 2),
    }


def test_flops_are_those_of_torchs_own_counter():
    with FlopCounterMode(display=False) as counter:
        wrapped.layers(EVEN)(torch.randn(BATCH, EVEN[0])).square().mean().backward()
    flops = logs_of(wrapped.ddp, 2)[0].flops
    assert sum(flops.values()) == 2 * NUM_STEPS * counter.get_total_flops()

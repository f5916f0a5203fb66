"""Simulations, against what real ranks recorded and against closed forms."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from runners.declared.closed_forms import ring_bytes
from runners.declared.experiment import find
from runners.traces import machine
from runners.traces.files import read
from runners.training.networks import mlp
from tests.runners.simulated_runs import simulated as simulate

pytestmark = pytest.mark.ranks
# One run of each kind that the engine knows, none of which takes long.
RUNS = [
    "accumulation.accumulated",
    "buckets.small",
    "checkpointing.each_9",
    "growth.stages_ranks_4",
    "hybrid.ddp_pipeline",
    "hybrid.hsdp",
    "mixed_precision.fp16",
    "sharding.fsdp_2",
    "sharding.fsdp_kept_2",
    "sharding.ddp_1",
    "sharding.zero_uneven_2",
    "transformer.pipelined",
    "tensor_parallel.ranks_2",
    "listings.ring_all_reduce_by_hand",
]


@pytest.fixture(scope="module")
def simulated():
    """The runs of `RUNS`, by name."""
    return simulate(*RUNS)


def first(ranks):
    """The log of rank 0."""
    assert not isinstance(ranks, str), ranks
    return ranks[0]


def recorded_ranks(name):
    """What the ranks of a run recorded on the reference machine."""
    experiment, run = name.split(".")
    return read(machine.references()[0] / f"{experiment}.json").runs[run].ranks


@pytest.mark.parametrize("name", RUNS[:-1])
def test_peaks_and_payloads_are_those_that_real_ranks_recorded(simulated, name):
    logs, recorded = simulated[name], recorded_ranks(name)
    assert [one.peak_bytes for one in logs] == [
        pytest.approx(one.memory.peak_bytes, rel=0.01) for one in recorded
    ]
    assert [one.payload_bytes for one in logs] == [
        {call.operation: call.bytes for call in one.collectives} for one in recorded
    ]


def test_a_ring_sends_what_its_closed_form_says(simulated):
    tensor_bytes = find("listings").runs["ring_all_reduce_by_hand"].settings.tensor_bytes
    calls = first(simulated["listings.ring_all_reduce_by_hand"]).calls
    sent = sum(one.bytes for one in calls if one.operation == "send")
    assert sent == ring_bytes(tensor_bytes, 4)


def test_collectives_are_known_by_the_axis_of_the_mesh_that_carries_them(simulated):
    calls = first(simulated["hybrid.hsdp"]).calls
    axes = {(one.operation, one.axis, one.num_ranks) for one in calls}
    assert axes == {
        ("all_gather", "shard", 2),
        ("reduce_scatter", "shard", 2),
        ("all_reduce", "replicate", 2),
    }
    measures = recorded_ranks("hybrid.hsdp")[0].measures
    for operation, axis, _ in axes:
        counted = sum(one.bytes for one in calls if (one.operation, one.axis) == (operation, axis))
        assert counted == measures[f"{axis}_{operation}_bytes"]


def test_flops_are_those_of_torchs_own_counter(simulated):
    settings = find("sharding").runs["ddp_1"].settings
    model = mlp(list(settings.widths))
    inputs = torch.randn(settings.batch_size, settings.widths[0])
    labels = torch.randint(0, settings.widths[-1], (settings.batch_size,))
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(model(inputs), labels).backward()
    flops = first(simulated["sharding.ddp_1"]).flops
    assert sum(flops.values()) == counter.get_total_flops()

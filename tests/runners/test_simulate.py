"""Simulations, against what real ranks recorded and against closed forms."""

import json

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from runners.__main__ import main
from runners.declared.closed_forms import ring_bytes
from runners.declared.experiment import find
from runners.simulate import command
from runners.simulate.command import compare, simulate, wanted
from runners.traces import machine
from runners.traces.digest import MORE
from runners.training.networks import mlp
from tests.processes import OWN_EXPERIMENTS

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
    return {f"{one.experiment}.{one.run}": one for one in simulate(wanted(RUNS))}


@pytest.fixture
def untrue(monkeypatch):
    """The tests' own experiments, too."""
    monkeypatch.setenv(MORE, OWN_EXPERIMENTS[MORE])


def simulated_run(experiment, run):
    """A run, simulated now."""
    (found,) = simulate(wanted([f"{experiment}.{run}"]))
    return found


def first(run):
    """The log of rank 0."""
    assert run.reason is None, run.reason
    return run.ranks[0]


def test_peaks_and_payloads_are_those_that_real_ranks_recorded(simulated):
    compared = compare(simulated.values(), machine.references()[0])
    metered = {name: one for name, one in compared.items() if one.recorded_peak_bytes is not None}
    assert set(metered) == set(RUNS) - {"listings.ring_all_reduce_by_hand"}
    assert {name: one.peak_error for name, one in metered.items()} == {
        name: pytest.approx(0, abs=0.01) for name in metered
    }
    assert {name: one.payload_error or 0 for name, one in metered.items()} == dict.fromkeys(
        metered, 0
    )


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
    recorded = json.loads((machine.references()[0] / "hybrid.json").read_text())["runs"]["hsdp"][
        "ranks"
    ][0]
    for operation, axis, _ in axes:
        counted = sum(one.bytes for one in calls if (one.operation, one.axis) == (operation, axis))
        assert counted == recorded["measures"][f"{axis}_{operation}_bytes"]


def test_flops_are_those_of_torchs_own_counter(simulated):
    settings = find("sharding").runs["ddp_1"].settings
    model = mlp(list(settings.widths))
    inputs = torch.randn(settings.batch_size, settings.widths[0])
    labels = torch.randint(0, settings.widths[-1], (settings.batch_size,))
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(model(inputs), labels).backward()
    flops = first(simulated["sharding.ddp_1"]).flops
    assert sum(flops.values()) == counter.get_total_flops()


@pytest.mark.parametrize(
    ("run", "reason", "has_failed"),
    [
        ("killed", "its process ended by signal 9", True),
        ("spins", "it does not end", True),
        ("selects", "what it does follows from values of tensors (aten.nonzero.default)", False),
        ("forks", "it starts processes of its own", False),
        ("talks", "its ranks wait for objects of each other", False),
    ],
)
def test_a_run_that_cannot_be_simulated_says_why(untrue, monkeypatch, run, reason, has_failed):
    monkeypatch.setattr(command, "MOST_SECONDS", 2)
    told = simulated_run("untrue", run)
    assert (told.reason, told.has_failed) == (reason, has_failed)


def test_a_command_whose_simulation_fails_names_the_run_and_ends_with_1(untrue, capsys):
    assert main(["simulate", "untrue.stumbles"]) == 1
    assert "failed: untrue.stumbles: ValueError: a fault\n" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of buffers that it reads
def test_no_run_of_the_book_fails_by_what_a_simulation_lacks():
    """Checkpoints, recorded collectives and earlier measurements take real ranks."""
    names = ["faults.resumed", "faults.replayed_minute", "hangs.order_same", "replicas.batch_norm"]
    names.append("hangs.order_swapped")
    found = {one.run: one for one in simulate(wanted(names))}
    assert {name: one.reason for name, one in found.items()} == {
        "resumed": "its ranks plan a checkpoint together",
        "replayed_minute": "it works with what was measured of killed",
        "order_swapped": "its ranks are meant to hang, which takes ranks that meet each other",
        "order_same": "it reads which collectives a real group recorded",
        "batch_norm": None,
    }
    assert not any(one.has_failed for one in found.values())


def test_nobody_sleeps(untrue):
    assert simulated_run("untrue", "sleeps").reason is None


def test_a_run_that_is_named_twice_is_simulated_once():
    assert wanted(["ddp.single", "ddp.ddp", "ddp.single"]) == wanted(["ddp.single", "ddp.ddp"])


def test_the_command_compares_a_run_with_its_record(capsys):
    assert main(["simulate", "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("python -m runners: no experiment 'nosuch'")
    assert main(["simulate", "sharding.zero_uneven_2", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)["sharding.zero_uneven_2"]
    assert one["peak_bytes"] == one["recorded_peak_bytes"]

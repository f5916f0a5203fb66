"""Every kind of measured number against shapes, plain torch and sleep, which are no meters."""

import hashlib
import platform
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor

from proofbook.runners.core.declared.experiment import Declaration, find
from proofbook.runners.core.measuring.gather import gather
from proofbook.runners.core.measuring.launch import PassResult, Place
from proofbook.runners.core.measuring.measure import with_spread
from proofbook.runners.core.ranks.heartbeat import Heart
from proofbook.runners.core.ranks.rank import Rank
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace.measured import MemoryClasses, Transfer
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import Held, Move
from proofbook.runners.session.progress import Progress
from tests.judged import judged
from tests.runners.experiments.known import (
    LATE_SECONDS,
    NAP_SECONDS,
    NUM_HELD,
    NUM_SAMPLES,
    samples,
)

MODEL_BYTES = 4 * (13 * 7 + 7)


def graded(model, features, labels):
    """Mean loss, and how many samples are classified rightly."""
    scores = model(features)
    right = [int(s.argmax()) == label for s, label in zip(scores, labels.tolist(), strict=True)]
    return -scores.log_softmax(1)[range(len(labels)), labels].mean(), sum(right)


def alone(rank):
    """A rank's training in plain torch: digest at the start, steps by epoch, model at the end."""
    torch.manual_seed(42)
    model, given, epochs = nn.Linear(13, 7), samples(rank, NUM_SAMPLES[rank]), []
    start = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(2):
        epochs.append([])
        for batch in zip(given.features.split(4), given.labels.split(4), strict=True):
            loss, num_right = graded(model, *batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epochs[-1].append((loss.item(), num_right))
    return start.hexdigest()[:12], epochs, model


def test_losses_accuracies_and_counts_are_those_of_plain_loops(run):
    learnt = run("known", "learn")
    digests, loops, (model, _) = zip(*(alone(rank) for rank in (0, 1)), strict=True)
    assert learnt.step_losses == pytest.approx([loss for one in loops[0] for loss, _ in one])
    for epoch, *own in zip(learnt.epochs, *loops, strict=True):
        losses, rights = zip(*own[0], *own[1], strict=True)
        assert [epoch.loss, epoch.accuracy] == pytest.approx([sum(losses) / 7, sum(rights) / 28])
        means = [sum(loss for loss, _ in one) / len(one) for one in own]
        assert [one.loss for one in epoch.ranks] == pytest.approx(means)
    found, unseen = learnt.validation, samples(9, 11)
    loss, num_right = graded(model, unseen.features, unseen.labels)
    assert (found.rank, found.num_samples, found.accuracy) == (0, 11, num_right / 11)
    assert found.loss == epoch.validation_loss == pytest.approx(loss.item())
    assert epoch.validation_accuracy == found.accuracy
    assert [one.num_samples for one in learnt.ranks] == [2 * 8, 2 * 20]
    assert [one.start_parameter_digest for one in learnt.ranks] == [*digests]
    ends = [one.parameter_digest for one in epoch.ranks]
    assert [one.parameter_digest for one in learnt.ranks] == ends
    assert {one.num_parameters for one in learnt.ranks} == {13 * 7 + 7}
    assert learnt.stages[0].ranks == []  # of a run that is not shown


@pytest.mark.parametrize("rank", [0, 1])
def test_bytes_and_calls_of_a_rank_follow_from_its_shapes(run, rank):
    record, num = run("known", "step").ranks[rank], NUM_SAMPLES[rank]
    memory = record.memory
    classes = MemoryClasses(
        parameters_bytes=MODEL_BYTES, gradients_bytes=MODEL_BYTES, buckets_bytes=MODEL_BYTES,
        optimizer_bytes=2 * MODEL_BYTES + 2 * 4, activations_bytes=2 * (NUM_HELD + rank),
        buffers_bytes=9 + num * (13 * 4 + 8),
    )  # fmt: skip
    assert memory.at_peak == memory.largest == classes
    assert memory.peak_bytes == memory.phases["exchange"] == sum(vars(classes).values())
    assert memory.peak_phase == "exchange"
    assert memory.phases["data"] == MODEL_BYTES + 9 + num * 13 * (8 + 4)
    marked = {"data", "exchange", ("sleep", "wait")[rank]}
    assert {*memory.phases} == {"build", "forward", "backward", "optimizer"} | marked
    reduced, broadcast, sent = record.collectives
    assert (reduced.operation, reduced.count, reduced.bytes) == ("all_reduce", 2, MODEL_BYTES)
    assert broadcast.transfers == [Transfer(source=1, destination=None, count=1, bytes=24)]
    assert sent.transfers == [Transfer(source=0, destination=1, count=1, bytes=10)]


def test_a_stage_shows_the_tensors_that_passed(run):
    (stage,) = run("known", "step").stages
    assert (stage.dtype, stage.values, stage.bytes) == ("bfloat16", [0, 5, 0, 0], 2 * NUM_HELD)
    held = [(rank, [NUM_SAMPLES[rank], 13], NUM_HELD + rank) for rank in (0, 1)]
    assert stage.ranks == [
        Held(rank=rank, shape_in=given, shape_out=[num], bytes=2 * num) for rank, given, num in held
    ]
    assert sorted(stage.moves, key=lambda move: move.operation) == [
        Move(operation="all_reduce", bytes=MODEL_BYTES),
        Move(operation="broadcast", source=1, bytes=24),
        Move(operation="send", source=0, destination=1, bytes=10),
    ]


def test_times_are_no_shorter_than_sleep_and_no_longer_than_the_run(run):
    timing = run("known", "step").timing
    settled = zip(timing.step.samples, range(3, 7), strict=True)
    assert all(one >= NAP_SECONDS * (1 + index) for one, index in settled)
    assert sum(timing.step.samples) <= run("known", "step").ranks[0].measures["loop_seconds"]
    passed = timing.stages["exchange"], timing.prediction["wait"]
    busy, idle = timing.ranks  # in the fifth step
    assert min(passed) >= NAP_SECONDS
    assert min(busy.compute_seconds, idle.waiting_seconds) >= 4 * NAP_SECONDS
    whole = max(span.end_seconds for span in timing.timeline)
    for one in timing.ranks:
        parts = one.compute_seconds, one.communication_seconds, one.waiting_seconds
        assert sum(parts) == pytest.approx(whole, abs=1e-5)
        assert one.waiting_share == pytest.approx(one.waiting_seconds / whole, abs=1e-4)
    assert sum(passed) + whole <= timing.wall_seconds
    times = timing.measures["known"]
    assert times.samples == pytest.approx([0.001 * k * k for k in range(0, 401, 3)])
    expected = torch.tensor(times.samples).quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    quartiles = times.first_quartile_seconds, times.median_seconds, times.third_quartile_seconds
    assert quartiles == pytest.approx(expected)


def test_what_waits_is_no_computing_and_a_collective_alone_takes_no_time_of_a_late_rank(run):
    spans = run("known", "step").timing.timeline
    computed = {one.name for one in spans if one.activity == "compute"}
    assert computed & {"sleep", "wait"} == {"sleep"}
    (taken,) = run("known", "late").timing.measures["alone"].samples
    assert taken < LATE_SECONDS / 2


def test_a_step_ends_when_its_accelerator_has(monkeypatch, tmp_path):
    monkeypatch.setattr(accelerator, "synchronize", lambda _: time.sleep(NAP_SECONDS))
    rank = Rank(0, Declaration("step"), "timed", torch.device("cpu"), Heart(tmp_path / "heart"))
    assert len([*rank.steps(2)]) == 2
    assert min(rank.outcome.step_seconds) >= NAP_SECONDS


def test_a_run_takes_what_all_its_passes_take():
    took = {"timed": 1.0, "metered": 2.0}
    passes = {name: PassResult([RankOutcome(rank=0)], None, [], took[name]) for name in took}
    found = gather(Declaration("learn"), passes, Place("cpu", "gloo"), oversubscribed=False)
    assert found.timing.wall_seconds == 3.0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the sets are those of x86")
def test_a_training_is_repeated_by_ranks_with_fewer_instructions_and_what_differs_is_kept(
    run, launcher
):
    once = run("known", "learn")
    no_floats = {"epochs": [], "step_losses": [], "validation": None, "stages": []}
    again, counted = (
        with_spread(one, "learn", find("known"), launcher, Progress())
        for one in (once, once.model_copy(update=no_floats))
    )
    assert counted.spread is None
    apart = {f"ranks.measures.{name}": 1.0 for name in ("capability", "products")}
    assert again.spread.items() >= apart.items()
    assert again.model_copy(update={"spread": None}) == once
    assert launcher.instructions == {}


MEMBERS = [1, 3]
BYTES = 1000  # of each tensor


def made():
    return torch.ones(BYTES // 4)


def grouped(rank):
    """Ranks 1 and 3 use every operation that has a root or a peer; rank 3 is the root."""
    group = dist.new_group(MEMBERS)
    rank.meter.counting = True
    if rank.rank in MEMBERS:
        pair = [made(), made()] if rank.rank == 3 else None
        dist.broadcast(made(), 3, group=group)
        dist.scatter(made(), pair, 3, group=group)
        dist.gather(made(), pair, 3, group=group)
        dist.reduce(made(), 3, group=group)
    if rank.rank == 1:
        dist.send(made(), 3, group=group)
        dist.send(made(), group=group, group_dst=1)
        dist.send(made(), 3)
        dist.send(made(), 3)
    elif rank.rank == 3:
        dist.recv(made(), 1, group=group)
        dist.recv(made(), group=group, group_src=0)
        dist.recv(made(), 1)
        dist.recv(made())  # from any rank
    dist.all_reduce(made())
    found = rank.meter.collective_list()
    by_operation = {one.operation: one.transfers for one in found}
    totals = {one.operation: (one.count, one.bytes) for one in found}
    return by_operation | {"totals": totals, "largest": rank.meter.largest_collective_bytes}


def transfer(source, destination, num_bytes, count=1):
    return Transfer(source=source, destination=destination, count=count, bytes=num_bytes)


@pytest.mark.ranks
def test_operations_in_a_subgroup_name_the_global_ranks_that_they_connect():
    """The source of what is received from any rank stays unknown."""
    ranks = [one.returned for one in judged(grouped, 4)]
    for rank, whole in ((1, BYTES), (3, 2 * BYTES)):
        assert ranks[rank]["broadcast"] == [transfer(3, None, BYTES)]
        assert ranks[rank]["scatter"] == [transfer(3, None, whole)]
        assert ranks[rank]["gather"] == [transfer(None, 3, whole)]
        assert ranks[rank]["reduce"] == [transfer(None, 3, BYTES)]
    assert ranks[1]["send"] == [transfer(1, 3, 4 * BYTES, count=4)]
    assert ranks[3]["recv"] == [transfer(None, 3, BYTES), transfer(1, 3, 3 * BYTES, count=3)]
    assert ranks[3]["totals"]["recv"] == (4, 4 * BYTES)
    assert ranks[0]["totals"] == {"all_reduce": (1, BYTES)}
    # The largest collective is the scatter of its root, and not the last.
    assert [one["largest"] for one in ranks] == [BYTES, BYTES, BYTES, 2 * BYTES]


def gathered(rank):
    """An all_gather and a reduce_scatter of one whole; a functional all_gather comes last."""
    rank.meter.counting = True
    parts = [made() for _ in range(rank.world_size)]
    whole = torch.cat(parts)
    dist.all_gather(parts, made())
    dist.all_gather_into_tensor(whole, made())
    dist.reduce_scatter_tensor(made(), whole)
    found = {one.operation: one.bytes for one in rank.meter.collective_list()}
    all_gather_tensor(made(), 0, dist.group.WORLD).wait()
    return found, rank.meter.collective_list()[0].bytes - found["all_gather"]


@pytest.mark.ranks
def test_bytes_are_the_larger_side_of_a_call_and_what_goes_into_a_functional_one():
    whole = 3 * BYTES
    expected = {"all_gather": 2 * whole, "reduce_scatter": whole}, BYTES
    assert [one.returned for one in judged(gathered, 3)] == [expected] * 3

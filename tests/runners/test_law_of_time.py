"""The law of time against its closed forms: when communication hides, and what a tier carries."""

import pytest

from proofbook.runners.core.trace.measured import MemoryClasses
from proofbook.runners.planner.answers.answer import Layout, PlanAnswer, answer_of, rivals
from proofbook.runners.planner.answers.law_of_time import Bounds, Cluster, bounds
from proofbook.runners.planner.answers.plan_grid import GridRank, read_grid
from proofbook.runners.planner.answers.question import strategy_of
from proofbook.runners.planner.simulated.grid import PLANS
from proofbook.runners.simulate.log import AxisCalls
from tests.runners.questions import asked

N, FLOPS = 10**9, 1e15  # parameters; operations of a device in a second


def rank(calls, flops=0):
    classes = MemoryClasses.model_validate(dict.fromkeys(MemoryClasses.model_fields, 0))
    zeros = {n: 0 for n in GridRank.model_fields if n not in ("peak_phase", "at_peak", "calls")}
    return GridRank(**{**zeros, "flops": flops}, peak_phase=None, at_peak=classes, calls=calls)


def call(operation, num_bytes, axis, num_ranks):
    return AxisCalls(operation=operation, axis=axis, num_ranks=num_ranks, count=1, bytes=num_bytes)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("fsdp", [("all_gather", 4 * N), ("reduce_scatter", 2 * N)]),  # gathered twice
        ("ddp", [("all_reduce", 2 * N)]),
    ],
)
@pytest.mark.parametrize("node_rate", [4e11, 5e10])
def test_communication_hides_from_the_tokens_on_that_the_rates_give(name, calls, node_rate):
    """With 6N bytes for 6NT operations, or 4N for the 4NT of backward: T = FLOP/s over bytes/s."""
    nodes, per_node = 1000, 8  # so many that a node receives nearly all from others
    cluster = Cluster(nodes, per_node, FLOPS, within=1e15, between=node_rate)
    devices = nodes * per_node
    tokens = FLOPS / node_rate
    operations = {"fsdp": 6, "ddp": 4}[name] * N * tokens
    sent = [call(operation, size, "data", devices) for operation, size in calls]
    law = bounds([rank(sent, round(operations))], strategy_of(name, devices), cluster)
    assert law.between == pytest.approx(law.computing, rel=2 / nodes)


@pytest.mark.parametrize(
    ("strategy", "mesh", "calls", "within", "between"),
    [
        # Four groups share a node's links.
        ("fsdp.2+tp.4", (2, 4),
         [("all_reduce", 1000, "tensor", 4), ("all_gather", 1000, "data", 2)],
         2 * 1000 * 3 / 4, 1000 / 2 * 4),
        # Of the whole between nodes: 8 shards of 1000.
        ("hsdp.2.8", (2, 8),
         [("all_gather", 8000, "shards", 8), ("all_reduce", 1000, "replicas", 2)],
         8000 * 7 / 8, 2 * 1000 / 2 * 8),
        ("1f1b", (1, 2), [("send", 1000, "pipeline", 2)], 1000, 0),
        ("1f1b", (2, 1), [("send", 1000, "pipeline", 2)], 0, 1000),
        # Each of eight ranks sends its own tokens to the experts of eight others.
        ("fsdp+ep.16", (2, 8), [("all_to_all", 1600, "expert", 16)],
         1600 * 7 / 16, 8 * 1600 * 8 / 16),
    ],
)  # fmt: skip
def test_each_tier_of_links_carries_what_ranks_on_it_send(strategy, mesh, calls, within, between):
    """And no step is shorter than the longest of its parts."""
    cluster = Cluster(*mesh, FLOPS, within=1e9, between=1e6)
    ranks = [rank([call(*one) for one in calls], 10**9)]
    law = bounds(ranks, strategy_of(strategy, cluster.num_devices), cluster)
    assert law.within == pytest.approx(within / 1e9)
    assert law.between == pytest.approx(between / 1e6)
    assert law.at_least == max(law.computing, law.within, law.between)
    assert law.at_most == pytest.approx(law.computing + law.within + law.between)


@pytest.mark.parametrize("devices", [8, 64])
def test_a_committed_plan_of_ddp_sends_the_bytes_of_a_ring_over_each_tier(devices):
    """Of 2 N bytes: twice 7/8 within the node, and twice 7/8 between eight nodes."""
    grid = read_grid(PLANS / "llama-8b.json")
    (row, *_) = [r for r in grid.rows if (r.strategy, r.state.devices) == ("ddp", devices)]
    cluster = Cluster(1, 8, 989e12, 450e9, 400e9).with_devices(devices)
    law = answer_of(row, grid).bounds(cluster)
    within, between = law.within * cluster.within, law.between * cluster.between
    assert within == pytest.approx(2 * 2 * grid.num_parameters * 7 / 8, rel=1e-3)
    assert between == pytest.approx(within if devices == 64 else 0)


def test_a_layout_dominates_only_where_it_is_worse_in_nothing():
    def of(strategy, computing=0.0, within=1.0, needed_bytes=500):
        cluster = Cluster(1, 8, FLOPS, within=1e9, between=1e9)
        answer = PlanAnswer(question=asked(strategy, devices=8), ranks=[rank([])], seconds=0)
        return Layout(answer, cluster, Bounds(computing, within, 0.0), needed_bytes, "fits")

    usual = of("zero1")
    assert of("zero1", needed_bytes=400).dominates(usual)
    assert not of("zero1", needed_bytes=400, within=1.1).dominates(usual)
    assert not of("zero1", needed_bytes=499).dominates(usual)  # by less than a hundredth
    assert of("zero1", needed_bytes=600, within=0.9).dominates(usual, is_memory_free=True)
    # Where computing decides, the rule does, too.
    assert of("ddp", computing=9.0).dominates(of("zero1", computing=9.0))
    assert not of("fsdp", computing=9.0, needed_bytes=400).dominates(of("zero1", computing=9.0))
    assert of("fsdp", needed_bytes=400).dominates(usual)


def test_rivals_do_the_same_training_on_as_many_devices():
    longer = "sequence_8192_checkpointed"
    found = rivals(f"fsdp_on_8_{longer}", read_grid(PLANS / "llama-8b.json"))
    assert {f"zero1_on_8_{longer}", f"pp_1f1b_on_8_{longer}"} < set(found)
    assert {one.state.sequence for one in found.values()} == {8192}
    assert {one.state.devices for one in found.values()} == {8}

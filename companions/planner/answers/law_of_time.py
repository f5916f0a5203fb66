"""The law of time: the bounds of a step by what its ranks compute and send. No torch.

In: simulated ranks, a strategy, and a cluster of nodes. Out: `Bounds`, in seconds. A step takes at
least as long as the longest of three parts, which a rank can overlap: computing, sending within its
node, and sending between nodes, all at a device's highest rates. It predicts no times.

A collective whose group spans several nodes is assumed to run in two tiers: among the ranks of each
node, and between nodes once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, NamedTuple

from proofbook.companions.planner.answers.plan_grid import GridRank
from proofbook.companions.planner.answers.question import Strategy
from proofbook.runners.simulate.log import RESHARDED, AxisCalls

Bottleneck = Literal["computing", "links within a node", "links between nodes"]
# How often the payload passes, next to an all_gather.
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


@dataclass(frozen=True)
class Cluster:
    """Devices, in nodes of equal size."""

    nodes: int
    per_node: int  # devices
    flops: float  # that a device does in a second, at its highest rate
    within: float  # bytes that a device sends in a second to the others of its node
    between: float  # bytes that all devices of a node together send in a second to other nodes

    @property
    def num_devices(self) -> int:
        """Devices of all nodes together."""
        return self.nodes * self.per_node

    def with_devices(self, devices: int) -> Cluster:
        """A cluster of the nodes that these devices fill; of a part of one where they are fewer."""
        per_node = min(devices, self.per_node)
        return replace(self, nodes=devices // per_node, per_node=per_node)


class Bounds(NamedTuple):
    """Seconds of a step."""

    computing: float  # the operations of the rank that has most, and the idle time of a pipeline
    within: float  # sending to devices of the same node
    between: float  # sending to other nodes

    @property
    def sending(self) -> float:
        """Seconds: the longer of both tiers, over which sending may run at once."""
        return max(self.within, self.between)

    @property
    def at_least(self) -> float:
        """Seconds: the longest of the parts, which may run at once; no step is shorter."""
        return max(self.computing, self.within, self.between)

    @property
    def bottleneck(self) -> Bottleneck:
        """The longest of the parts, which makes the lower bound."""
        if self.at_least == self.between:
            return "links between nodes"
        return "links within a node" if self.at_least == self.within else "computing"


def _spread(axis: str, num_ranks: int, strategy: Strategy, cluster: Cluster) -> tuple[int, int]:
    """The ranks of a group in each node, and the number of its nodes.

    Ranks of a node divide a layer first, then the samples, then the stages.
    """
    each = strategy.num_summing * strategy.tensor
    neighbours = dict.fromkeys(("data", "shards", RESHARDED, "context"), strategy.tensor)
    strides = {"tensor": 1, **neighbours, "replicas": strategy.tensor * strategy.shards}
    strides |= {"expert": 1, "expert_data": strategy.expert}
    stride = strides.get(axis, each)
    inner = max(1, min(num_ranks, cluster.per_node // stride))
    return inner, ceil(num_ranks / inner)


def seconds_of_call(call: AxisCalls, strategy: Strategy, cluster: Cluster) -> tuple[float, float]:
    """A pair of least seconds of calls, by bytes over rates: within a node, between nodes."""
    inner, nodes = _spread(call.axis, call.num_ranks, strategy, cluster)
    groups = cluster.per_node / inner  # that share the node's links
    if (call.operation, call.axis) == ("all_to_all", "context"):  # around a ring, to the next rank
        crosses = nodes > 1
        return call.bytes / cluster.within, crosses * call.bytes * groups / cluster.between
    if call.operation == "all_to_all":  # each rank has something else for each of the others
        each = call.bytes / call.num_ranks
        crossing = (call.num_ranks - inner) * each * cluster.per_node
        return (inner - 1) * each / cluster.within, crossing / cluster.between
    if call.operation in _PASSES:
        passed = _PASSES[call.operation] * call.bytes
        return (
            passed * (inner - 1) / inner / cluster.within,
            passed * (nodes - 1) / nodes * groups / cluster.between,
        )
    if call.operation != "send":
        return 0.0, 0.0
    if nodes == 1:
        return call.bytes / cluster.within, 0.0
    senders = min(cluster.per_node, strategy.num_summing * strategy.tensor)
    return 0.0, call.bytes * senders / cluster.between


def bounds(
    ranks: Sequence[GridRank], strategy: Strategy, cluster: Cluster, pipelined_flops: float = 0.0
) -> Bounds:
    """`Bounds`: the most seconds of ranks, computing (at least `pipelined_flops`) and by tier."""
    computing = max(pipelined_flops, *(rank.flops for rank in ranks)) / cluster.flops
    seconds = []
    for rank in ranks:
        tiers = [seconds_of_call(call, strategy, cluster) for call in rank.calls]
        seconds.append([sum(tier) for tier in zip(*tiers, strict=True)] or [0.0, 0.0])
    return Bounds(computing, *(max(column) for column in zip(*seconds, strict=True)))

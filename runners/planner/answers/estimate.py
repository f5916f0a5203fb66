"""How long a step probably takes: the estimate that orders layouts, fitted to published ones.

In: what the ranks of a layout compute and send, and a cluster. Out: seconds, by part. The bounds of
`law_of_time` hold whatever a program does; this says what programs usually do. Its ten numbers
are fitted to a thousand published layouts (`published_layouts`), and leaving clusters out one at
a time says how often the layout that it prefers is among the fastest. No torch.

Formula: pipeline + sums that nothing hides + latency + update + start, where a stage takes for each
microbatch the fourth-power mean of its work and of the host's launches, whichever is longer.
"""

from collections.abc import Sequence
from functools import cache
from math import log2
from typing import NamedTuple, Self

from runners.planner.answers.law_of_time import Cluster, seconds_of_call
from runners.planner.answers.plan_grid import GridRank
from runners.planner.answers.published import LAYOUTS
from runners.planner.answers.question import Question
from runners.simulate.log import RESHARDED, AxisCalls
from runners.traces.files import read

# Operations that an H100 does while its memory moves a byte; other devices are taken to be alike.
PER_BYTE = 989e12 / 3.35e12
_POWER = 4  # of the mean of two times, of which the longer one hides most of the other
ALIKE = 1.05  # estimates that differ by less leave open which layout is faster
SHARES = ("products", "tensor_links", "far_links", "sum_links")
_WAITED = ("tensor", "expert", "context")
_BESIDE = ("data", "shards", RESHARDED, "expert_data", "replicas")


class Parameters(NamedTuple):
    """What is fitted.

    Attributes:
        products: share of a device's highest rate that products of matrices reach.
        passes: bytes for each element of a hidden state that a layer's other operations move.
        tensor_links: share of the links within a node that tensor parallelism reaches.
        far_links: share of the links between nodes that it reaches.
        sum_links: share of either that sums of gradients and gathers of parameters reach.
        latency_seconds: of a step's sums, for each doubling of the ranks.
        update: how often the update's bytes pass through memory.
        start_seconds: of each step, whatever it does.
        launch_seconds: that a host needs for a layer whose ranks divide it.
        far_launch_seconds: the same in pipelines over several nodes.
    """

    products: float
    passes: float
    tensor_links: float
    far_links: float
    sum_links: float
    latency_seconds: float
    update: float
    start_seconds: float
    launch_seconds: float
    far_launch_seconds: float


START = Parameters(0.45, 120.0, 0.8, 0.1, 0.4, 0.006, 8.0, 0.05, 0.0044, 0.02)  # of the fit


class Estimate(NamedTuple):
    """Seconds of a step, by part; their sum is the estimate.

    Attributes:
        computing: the longest stage, over all microbatches, with what it waits for.
        idle: of that stage, while a pipeline fills and drains.
        sums: of gradients and parameters, beside which nothing else is done.
        rest: latency, the update, and what each step begins with.
    """

    computing: float
    idle: float
    sums: float
    rest: float

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return sum(self)

    def times(self, factor: float) -> Self:
        """The same where everything takes so many times as long."""
        return type(self)(*(factor * part for part in self))


class Work(NamedTuple):
    """What a step consists of: all that is fitted stands outside of it.

    Attributes:
        stages: of each rank of the pipeline, for one microbatch: operations, bytes that its layers'
            other operations move if an element moves one, seconds at the full rate of the links
            within a node and between nodes that it waits for, and layers that launch.
        beside: seconds of a step's sums within a node and between, that computing may hide.
        hidden_by: microbatches whose computing does; 0: none.
        flops, num_microbatches, chunks, num_summing: of the device, the step, the pipeline.
        update_bytes: of parameters, gradients and state.
        is_far: layers are divided in a pipeline over several nodes.
    """

    stages: tuple[tuple[float, float, float, float, int], ...]
    beside: tuple[float, float]
    hidden_by: int
    flops: float
    num_microbatches: int
    chunks: int
    num_summing: int
    update_bytes: float
    is_far: bool


def work_of(question: Question, ranks: Sequence[GridRank], cluster: Cluster) -> Work:
    """The work of a layout on a cluster.

    Args:
        question: the layout.
        ranks: the first, the second and the last of its pipeline; simulated, or by closed forms.
        cluster: which devices do it.
    """
    strategy, shape = question.strategy, question.model.architecture
    num, hidden = question.num_microbatches, shape.hidden_size if shape else 0
    tokens = question.training.microbatch * question.training.sequence // strategy.context
    stages = []
    for stage in range(strategy.pipeline):
        layers = sum(len(question.layers_of(one)) for one in strategy.stages_of(stage))
        like = ranks[-1 if stage == strategy.pipeline - 1 else min(stage, 1)]
        its = sum(len(question.layers_of(one)) for one in strategy.stages_of(min(stage, 1)))
        share = 1.0 if like is ranks[-1] or not its else layers / its
        waited = [_of_call(one, question, cluster) for one in like.calls if one.axis in _WAITED]
        stages.append(
            (
                share * like.flops / num,
                tokens * hidden * layers / strategy.tensor,
                share * sum(within for within, _ in waited) / num,
                share * sum(between for _, between in waited) / num,
                layers if strategy.tensor > 1 else 0,
            )
        )
    first = max(ranks, key=lambda one: one.num_parameters)
    beside = [_of_call(one, question, cluster) for one in first.calls if one.axis in _BESIDE]
    shares = strategy.sharding.startswith("fsdp")
    return Work(
        stages=tuple(stages),
        beside=(sum(one for one, _ in beside), sum(one for _, one in beside)),
        hidden_by=num if shares else int(strategy.sharding == "none"),
        flops=cluster.flops,
        num_microbatches=num,
        chunks=strategy.chunks,
        num_summing=strategy.num_summing,
        update_bytes=first.num_parameters * (8 + 20 / (1 if shares else strategy.shards)),
        is_far=strategy.tensor > 1 < strategy.pipeline
        and strategy.tensor * strategy.pipeline > cluster.per_node,
    )


def _of_call(call: AxisCalls, question: Question, cluster: Cluster) -> tuple[float, float]:
    return seconds_of_call(call, question.strategy, cluster)


def estimated(work: Work, by: Parameters) -> Estimate:
    """The estimate of a step."""
    launch = by.far_launch_seconds if work.is_far else by.launch_seconds
    rate, moved = work.flops * by.products, by.passes * PER_BYTE / work.flops
    times = []
    for flops, elements, within, between, layers in work.stages:
        busy = flops / rate + elements * moved
        busy += within / by.tensor_links + between / by.far_links
        times.append((busy**_POWER + (layers * launch) ** _POWER) ** (1 / _POWER))
    longest, num = max(times), work.num_microbatches
    computing, sums = num * longest, sum(work.beside) / by.sum_links
    rest = by.start_seconds + by.update * work.update_bytes * PER_BYTE / work.flops
    if work.num_summing > 1:
        rest += by.latency_seconds * log2(work.num_summing)
    return Estimate(
        computing=computing,
        idle=(sum(times) - longest) / work.chunks,
        sums=max(0.0, sums - work.hidden_by * longest),
        rest=rest,
    )


class Fitted(NamedTuple):
    """What `plan check plan_layouts` found.

    Attributes:
        parameters: fitted to all clusters.
        error: of the estimate: the median over the layouts that were nearly as fast as the fastest
            of their cluster, each estimated by a fit to the other clusters; a share.
    """

    parameters: Parameters
    error: float


@cache
def fitted() -> Fitted:
    """The committed fit.

    Raises:
        TraceError: there is none.
    """
    found = read(LAYOUTS.path).runs["fitted"].ranks[0].measures
    values = {name: found[name] for name in (*Parameters._fields, "error")}
    numbers = {name: float(one) for name, one in values.items() if isinstance(one, float | int)}
    return Fitted(error=numbers.pop("error"), parameters=Parameters(**numbers))

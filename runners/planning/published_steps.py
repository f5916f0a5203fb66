"""Published rates of training steps beside the law of time: bounds, fits and scores. No torch.

In: the rows of planner/published_steps.yml. Out: a trace. A row's run has the rate that the law
allows at most, and the rate at its device's efficiency. A device's run has this efficiency, how
many rows that were held out it predicts, and how many pairs of layouts it orders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, groupby
from pathlib import Path
from statistics import median
from typing import Any, Literal

from runners.planning.law_of_time import Bounds, Cluster, bounds
from runners.planning.question import Strategy
from runners.plans.closed_forms import layers_of_stages, pipelined_work
from runners.traces import published_steps as listed
from runners.traces.plan_grid import GridCall, GridRank, Simulated, made_here, run_of, trace_of
from runners.traces.published_steps import PublishedStep
from runners.traces.records import RankRecord, Run, Trace
from runners.traces.schema import Setting

PATH = Path(__file__).resolve().parents[2] / "content" / listed.FILE
PER_NODE = 8
WIDTH_BYTES = 2  # of a gathered parameter, and of an activation
WITHIN = 0.2  # a predicted time may differ from the published one by so much
SETTINGS = ("model", "sequence", "devices", "tensor", "pipeline", "micro", "batch", "sharding")
APART = 1.05  # times that differ by less are no order


def data(row: PublishedStep) -> int:
    """Ranks that see other samples."""
    return row.devices // (row.tensor * row.pipeline)


def flops(row: PublishedStep) -> float:
    """Operations of a device in a step.

    Formula: for each token 6 for each weight of the layers and 12 × hidden × sequence for each
    layer, with a third more where they are computed again, and 6 × hidden × vocabulary.
    Source: Narayanan et al., “Efficient Large-Scale Language Model Training on GPU Clusters”, 3.
    """
    layers = 6 * _weights(row) + 12 * row.layers * row.hidden * row.sequence
    head = 6 * row.hidden * row.vocabulary
    return _tokens(row) * (layers * (1 + row.recomputed / 3) + head)


def law(row: PublishedStep, efficiency: float = 1.0, *, is_flat: bool = False) -> Bounds:
    """The bounds of a step, where a device computes at a share of its highest rate.

    Args:
        row: what is trained, and on what.
        efficiency: the share.
        is_flat: one ring over all ranks, which uses one adapter of each node.
    """
    # On one node, no byte takes the links between nodes.
    between = (row.between or row.within) / (PER_NODE if is_flat else 1)
    nodes = max(1, row.devices // PER_NODE)
    cluster = Cluster(nodes, PER_NODE, row.flops * efficiency, row.within, between)
    strategy = Strategy(name=row.table, data=data(row), tensor=row.tensor, pipeline=row.pipeline)
    # Interleaved as far as possible: each layer of a stage is a chunk.
    stages, chunks = [flops(row)] * row.pipeline, row.layers / row.pipeline
    if not row.is_interleaved:
        stages, chunks = _stages(row), 1
    *before, last = stages
    pipelined = pipelined_work([sum(before), last], 1, chunks * _microbatches(row))
    rank = GridRank.model_construct(flops=max(stages), calls=_calls(row))
    return bounds([rank], strategy, cluster, float(pipelined))


def _stages(row: PublishedStep) -> list[float]:
    """Operations of a device of each stage; the last one computes the logits."""
    head = 6 * row.hidden * row.vocabulary * _tokens(row) * row.pipeline
    layer = (flops(row) * row.pipeline - head) / row.layers
    found = [layer * num for num in layers_of_stages(row.layers, row.pipeline)]
    return [*found[:-1], found[-1] + head]


def _weights(row: PublishedStep) -> int:
    return row.layers * (row.layer_weights or 12 * row.hidden**2)


def _tokens(row: PublishedStep) -> float:
    return row.batch * row.sequence / row.devices


def _microbatches(row: PublishedStep) -> int:
    return row.batch // (data(row) * row.micro)


def _calls(row: PublishedStep) -> list[GridCall]:
    """What a rank sends in a step, by closed forms."""
    passes, layers = _microbatches(row), row.layers // row.pipeline
    held = (_weights(row) + row.hidden * row.vocabulary) // (row.tensor * row.pipeline)
    activation = row.micro * row.sequence * row.hidden * WIDTH_BYTES
    if row.sharding == "fsdp":
        calls = [
            _call("all_gather", "data", data(row), 2 * passes, held * WIDTH_BYTES),
            _call("reduce_scatter", "data", data(row), passes, held * row.reduced_bytes),
        ]
    else:
        calls = [_call("all_reduce", "data", data(row), 1, held * row.reduced_bytes)]
    if row.tensor > 1:  # two products of a layer need a sum: in forward, in backward, and again
        sums = round(passes * layers * (4 + 2 * row.recomputed))
        calls.append(_call("all_reduce", "tensor", row.tensor, sums, activation))
    if row.pipeline > 1:  # each tensor rank sends its share, forward and backward
        share = activation // row.tensor
        calls.append(_call("send", "pipeline", row.pipeline, 2 * passes, share))
    return calls


def _call(operation: str, axis: str, num_ranks: int, count: int, num_bytes: int) -> GridCall:
    total = count * num_bytes
    return GridCall(operation=operation, axis=axis, num_ranks=num_ranks, count=count, bytes=total)


def _rate(row: PublishedStep, seconds: float) -> float:
    """Of a device whose step takes so long, in the unit of the source."""
    return (_tokens(row) if row.unit == "tokens/s" else flops(row) / 1e12) / seconds


def published_seconds(row: PublishedStep) -> float:
    """What the published rate says of a step."""
    return _rate(row, 1.0) / row.rate


def efficiency(rows: Sequence[PublishedStep]) -> float:
    """The median share of the highest rate at which the law gives the published times exactly."""
    exact = []
    for row in rows:
        highest = law(row)
        exact.append(highest.computing / (published_seconds(row) - highest.waiting))
    return median(exact)


def error(row: PublishedStep, share: float) -> float:
    """Of the time that the law gives at an efficiency, relative to the published one."""
    return law(row, share).at_least / published_seconds(row) - 1


def order(
    one: PublishedStep, other: PublishedStep, share: float
) -> Literal["right", "wrong", "none"] | None:
    """How the law orders two layouts; None where they are no pair."""
    if (one.model, one.sequence) != (other.model, other.sequence):
        return None
    fast, slow = sorted((one, other), key=lambda row: published_seconds(row) / _tokens(row))
    if published_seconds(slow) / _tokens(slow) < APART * published_seconds(fast) / _tokens(fast):
        return None
    predicted = [law(row, share).at_least / _tokens(row) for row in (fast, slow)]
    if max(predicted) < APART * min(predicted):
        return "none"
    return "right" if predicted[0] < predicted[1] else "wrong"


def trace() -> Trace:
    """Every row and every device as a run."""
    runs: dict[str, Run] = {}
    for device, found in groupby(listed.published_steps(), lambda row: row.device):
        rows = list(found)
        share = efficiency(rows[::2])
        runs |= {row.run: _row_run(row, share) for row in rows} | {device: _scores(rows, share)}
    made = made_here([], listed.digest(runs))
    del made["rows"]
    return trace_of(listed.EXPERIMENT, listed.QUESTION, Simulated(**made), runs)


def _row_run(row: PublishedStep, share: float) -> Run:
    measures: dict[str, Setting] = {
        "at_most": _rate(row, law(row).at_least),
        "at_most_flat": _rate(row, law(row, is_flat=True).at_least),
        "predicted": _rate(row, law(row, share).at_least),
        "error_share": error(row, share),
    }
    return _run({name: getattr(row, name) for name in SETTINGS}, measures)


def _scores(rows: Sequence[PublishedStep], share: float) -> Run:
    held_out = rows[1::2]
    orders: Counter[str] = Counter()
    for one, other in combinations(rows, 2):
        if found := order(one, other, share):
            orders["pairs"] += 1
            orders[found] += 1
            orders[f"{found} by checkpointing"] += one.recomputed != other.recomputed
            orders[f"{found} by sharding"] += one.sharding != other.sharding
    measures: dict[str, Setting] = {
        "efficiency_share": share,
        "num_rows": len(rows),
        "num_possible": sum(law(row).at_least <= published_seconds(row) for row in rows),
        "num_held_out": len(held_out),
        "num_within": sum(abs(error(row, share)) <= WITHIN for row in held_out),
        "num_pairs": orders["pairs"],
        "num_right": orders["right"],
        "num_right_by_checkpointing": orders["right by checkpointing"],
        "num_wrong": orders["wrong"],
        "num_wrong_by_sharding": orders["wrong by sharding"],
    }
    return _run({"device": rows[0].device}, measures)


def _run(settings: dict[str, Any], measures: dict[str, Setting]) -> Run:
    rank = RankRecord(rank=0, status="completed", measures=measures)
    return run_of("published", settings, [rank], 0.0)


def lines(made: Trace) -> list[str]:
    """A line for each run."""
    measures = {name: run.ranks[0].measures for name, run in made.runs.items()}
    said = {
        name: (f"{key} {value:.4g}" for key, value in m.items()) for name, m in measures.items()
    }
    return [f"{name:<44}{', '.join(parts)}" for name, parts in said.items()]

"""Published training steps beside their bounds and the estimate. No torch.

In: planner/published_steps.yml and planner/published_choices.yml, whose heads state what qualifies.
Out: runs. A published rate's has the rate that the law of time allows at most, and the estimate's.
A device's says how the estimate compares there, since it was fitted to other rows, and how many
rows are near that. That of a search for the best layout says how much longer the step of the layout
that the estimate prefers took than that of the winner. Nothing is simulated: operations and bytes
are closed forms.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from statistics import median
from typing import Literal

import yaml

from runners.declared.closed_forms import layers_of_stages, pipelined_work
from runners.planner.answers import closed_form
from runners.planner.answers.architecture import Architecture
from runners.planner.answers.law_of_time import Bounds, Cluster, bounds
from runners.planner.answers.plan_grid import GridRank
from runners.planner.answers.published import PLANNER, run, run_name
from runners.planner.answers.question import Model, Question, Strategy, Training
from runners.simulate.log import AxisCalls
from runners.traces.records import Run
from runners.traces.schema import Record, Setting

STEPS, CHOICES = "published_steps.yml", "published_choices.yml"
PER_NODE = 8
WIDTH_BYTES = 2  # of a gathered parameter, and of an activation
WITHIN = 0.2  # an estimate may differ by so much from the usual one of its device
SETTINGS = {
    "device", "model", "sequence", "devices", "tensor", "pipeline", "micro", "batch", "sharding",
    "rate", "unit", "title", "where", "url",
}  # fmt: skip
OF_SEARCH = {"url", "model", "sequence", "devices", "batch", "num_out_of_memory"}
HEAD = 128  # width of a head, which the sources do not state


class PublishedStep(Record):
    """A published step, with all that its table, model, device and source say of it.

    Attributes:
        table, device: their names in the file.
        micro, batch: samples of a forward pass of one data-parallel rank, and of a step.
        rate: of each device, in `unit`; in seconds it is that of a step.
        layers, hidden, vocabulary: of a dense decoder.
        layer_weights: of a layer's products, if they are not 12 × hidden².
        sharding: of data parallelism.
        is_interleaved: a rank of a pipeline has as many stages as layers.
        recomputed: the share of the layers' products that backward computes again.
        reduced_bytes: of a gradient, as FSDP reduces it.
        flops: of a device in a second, at its highest rate.
        within, between: bytes a second, as `law_of_time.Cluster` has them; None where the source
            does not state what a node sends.
        mfu: share of `flops`, where the source of a search states it.
        num_out_of_memory: other layouts that were tried with these.
    """

    table: str
    device: str
    model: str
    sequence: int
    devices: int
    tensor: int
    pipeline: int
    micro: int
    batch: int
    rate: float
    layers: int
    hidden: int
    vocabulary: int
    layer_weights: int = 0
    sharding: Literal["none", "zero1", "fsdp"]
    is_interleaved: bool = True
    recomputed: float
    reduced_bytes: int = 2
    flops: float
    within: float
    between: float | None
    mfu: float = 0.0
    num_out_of_memory: int = 0
    title: str
    where: str
    url: str
    unit: Literal["TFLOP/s", "tokens/s", "s"]

    @property
    def run(self) -> str:
        """The name of its run."""
        return run_name(f"{self.table}_{self.model}_{self.sequence}_on_{self.devices}")


def published_steps(name: str) -> list[PublishedStep]:
    """The rows of a file of the planner, in their order.

    Raises:
        ValueError, KeyError: the file is not what it should be.
    """
    file = yaml.safe_load((PLANNER / name).read_text(encoding="utf-8"))
    found = []
    for table in file["tables"]:
        source, cluster, part = file["sources"][table["source"]], table["cluster"], table["part"]
        shared = {**source, **cluster, **file["devices"][cluster["device"]], **table["layout"]}
        shared |= {"table": table["name"], "title": f"{source['title']}, {part}"}
        shared["url"] = source["url"].format(part=part)
        for row in table["rows"]:
            about = shared | dict(zip(file["columns"], row, strict=True))
            found.append(PublishedStep(**about, **file["models"][about["model"]]))
    return found


def data(row: PublishedStep) -> int:
    """The number of data-parallel ranks: those that see other samples."""
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


def law(row: PublishedStep, *, is_flat: bool = False) -> Bounds:
    """The bounds of a step.

    Args:
        row: what is trained, and on what.
        is_flat: one ring over all ranks, which uses one adapter of each node.
    """
    given = _cluster(row)
    between = given.between / (PER_NODE if is_flat else 1)
    cluster = replace(given, between=between)
    strategy = Strategy(name=row.table, data=data(row), tensor=row.tensor, pipeline=row.pipeline)
    # Interleaved as far as possible: each layer of a stage is a chunk.
    stages, chunks = [flops(row)] * row.pipeline, row.layers / row.pipeline
    if not row.is_interleaved:
        stages, chunks = _stages(row), 1
    *before, last = stages
    pipelined = pipelined_work([sum(before), last], 1, chunks * _microbatches(row))
    rank = GridRank.model_construct(flops=max(stages), calls=_calls(row))
    return bounds([rank], strategy, cluster, float(pipelined))


def _cluster(row: PublishedStep) -> Cluster:
    nodes, between = max(1, row.devices // PER_NODE), row.between or row.within
    return Cluster(nodes, PER_NODE, row.flops, row.within, between)  # one node sends within itself


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


def _calls(row: PublishedStep) -> list[AxisCalls]:
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


def _call(operation: str, axis: str, num_ranks: int, count: int, num_bytes: int) -> AxisCalls:
    total = count * num_bytes
    return AxisCalls(operation=operation, axis=axis, num_ranks=num_ranks, count=count, bytes=total)


def _rate(row: PublishedStep, seconds: float) -> float:
    """Of a device whose step takes so long, in the unit of the source."""
    return (_tokens(row) if row.unit == "tokens/s" else flops(row) / 1e12) / seconds


def published_seconds(row: PublishedStep) -> float:
    """What is published of a step."""
    return row.rate if row.unit == "s" else _rate(row, 1.0) / row.rate


def runs() -> dict[str, Run]:
    """Every rate, every device and every search as a run."""
    found: dict[str, Run] = {}
    for device, of_device in groupby(published_steps(STEPS), lambda row: row.device):
        rows = list(of_device)
        for row in rows:
            measures: dict[str, Setting] = {
                "at_most": _rate(row, law(row).at_least),
                "at_most_flat": _rate(row, law(row, is_flat=True).at_least),
                "estimated": _rate(row, estimate(row)),
                "error_share": estimate(row) / published_seconds(row) - 1,
            }
            place: dict[str, Setting] = {"place": len(found)}
            found[row.run] = run(place | row.model_dump(include=SETTINGS), measures)
        found[device] = _scores(rows)
    searches = groupby(published_steps(CHOICES), lambda row: row.table)
    return found | {
        run_name(f"choice-{table}"): _choice(list(rows), place)
        for place, (table, rows) in enumerate(searches)
    }


def _scores(rows: Sequence[PublishedStep]) -> Run:
    ratios = [estimate(row) / published_seconds(row) for row in rows]
    usual = median(ratios)
    measures: dict[str, Setting] = {
        "num_rows": len(rows),
        "num_possible": sum(law(row).at_least <= published_seconds(row) for row in rows),
        "estimate_ratio": usual,
        "num_within": sum(abs(one / usual - 1) <= WITHIN for one in ratios),
    }
    return run({"device": rows[0].device, "head": HEAD}, measures)


def _choice(rows: Sequence[PublishedStep], place: int) -> Run:
    """What won in a search, and what the estimate prefers."""
    won, preferred = min(rows, key=published_seconds), min(rows, key=estimate)
    settings = {
        "place": place,
        "id": won.table,
        **won.model_dump(include=OF_SEARCH),
        "won": _axes(won),
        "preferred": _axes(preferred),
    }
    measures: dict[str, Setting] = {
        "slower_share": published_seconds(preferred) / published_seconds(won) - 1,
        "num_layouts": len(rows),
    }
    return run(settings, measures)


def _axes(row: PublishedStep) -> list[int]:
    return [row.tensor, row.pipeline, row.micro]


@cache
def estimate(row: PublishedStep) -> float:
    """Seconds of a step by the estimate, which was fitted to none of these rows."""
    width, is_gated = row.hidden // HEAD, bool(row.layer_weights)
    gated = (row.layer_weights - 4 * row.hidden**2) // (3 * row.hidden)
    shape = Architecture(
        num_layers=row.layers,
        hidden_size=row.hidden,
        num_heads=width,
        num_kv_heads=width,
        ffn_size=gated if is_gated else 4 * row.hidden,
        vocabulary=row.vocabulary,
        context_length=row.sequence,
        positions="rotary",
        activation="swiglu" if is_gated else "gelu",
        norm="rmsnorm",
        has_bias=False,
        has_tied_embeddings=False,
    )
    strategy = Strategy(
        name=row.table,
        data=data(row),
        tensor=row.tensor,
        pipeline=row.pipeline,
        sharding=row.sharding,
        schedule="1f1b" if row.pipeline > 1 else "none",
        has_sequence_parallel=row.tensor > 1,
    )
    training = Training(
        sequence=row.sequence,
        microbatch=row.micro,
        global_batch=row.batch,
        checkpointing="all" if row.recomputed == 1 else "selective" if row.recomputed else "none",
    )
    model = Model(name=row.model, architecture=shape)
    answer = closed_form.answer(Question(model=model, training=training, strategy=strategy))
    return answer.estimate(_cluster(row)).seconds

"""Published searches for the best layout, and what the law of time prefers. No torch.

In: planner/published_choices.yml, whose layouts fitted in memory where they were measured. Out: a
`PublishedChoice` for each search. Nothing is simulated: operations and bytes are closed forms.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import NamedTuple

import yaml

from runners.planning.law_of_time import Bounds, Cluster, bounds
from runners.planning.question import Strategy
from runners.plans.closed_forms import layers_of_stages, pipelined_work
from runners.traces.digest import ROOT
from runners.traces.plan_grid import GridCall, GridRank
from runners.traces.published_plans import CHOICES, PublishedChoice
from runners.traces.schema import Record

APART = 1.05  # measured steps that differ by less are no order
BF16 = 2  # bytes


class Shape(Record):
    """Of a dense decoder with gated feed-forward networks and attention of full width."""

    layers: int
    hidden: int
    ffn: int

    @property
    def layer_weights(self) -> int:
        """Of the products of a layer."""
        return 4 * self.hidden**2 + 3 * self.hidden * self.ffn


class Search(Record):
    """One published table; the head of its file says what its fields are."""

    id: str
    path: str
    model: str
    sequence: int
    devices: int
    batch: int
    mfu: float
    num_out_of_memory: int
    runs: list[tuple[int, int, int, float]]


class Links(Record):
    """As `Cluster` has them, without the number of nodes."""

    per_node: int
    flops: float
    within: float
    between: float


class ChoicesFile(Record):
    """content/planner/published_choices.yml."""

    repository: str
    commit: str
    vocabulary: int
    cluster: Links
    models: dict[str, Shape]
    cases: list[Search]


class Layout(NamedTuple):
    """A measured layout by the law: less of `key` is better."""

    axes: tuple[int, int, int]
    seconds: float
    key: tuple[float, float, int, int]


def listed() -> ChoicesFile:
    """The searches, in the order of the file.

    Raises:
        ValueError: the file is not what it should be.
    """
    text = (ROOT / "content" / CHOICES).read_text(encoding="utf-8")
    return ChoicesFile.model_validate_json(json.dumps(yaml.safe_load(text)))


def law(file: ChoicesFile, case: Search, axes: tuple[int, int, int]) -> tuple[Bounds, int]:
    """The bounds of a step, and the parameters of the device that holds most.

    Formula: for each token 6 operations for each weight of a layer, 12 × hidden × sequence for its
    attention, and 6 × hidden × vocabulary for the logits, of which the last stage computes all.
    Source: Narayanan et al., “Efficient Large-Scale Language Model Training on GPU Clusters”, 3.
    """
    tensor, pipeline, micro = axes
    shape, links = file.models[case.model], file.cluster
    data = case.devices // (tensor * pipeline)
    passes = case.batch // (data * micro)
    tokens = passes * micro * case.sequence
    layer = tokens * (6 * shape.layer_weights + 12 * shape.hidden * case.sequence) / tensor
    ends = shape.hidden * file.vocabulary
    layers = layers_of_stages(shape.layers, pipeline)
    stages = [num * layer for num in layers]
    stages[-1] += 6 * tokens * ends / tensor
    held = (layers[0] * shape.layer_weights + (2 if pipeline == 1 else 1) * ends) // tensor
    activation = micro * case.sequence * shape.hidden * BF16
    calls = [
        _call("reduce_scatter", "data", data, 1, held * BF16),
        _call("all_gather", "data", data, 1, held * BF16),
        _call("all_reduce", "tensor", tensor, 4 * passes * layers[0], activation),
        _call("send", "pipeline", pipeline, 2 * passes, activation // tensor),
    ]
    found = bounds(
        [GridRank.model_construct(flops=max(stages), calls=[c for c in calls if c.num_ranks > 1])],
        Strategy(name=case.id, data=data, tensor=tensor, pipeline=pipeline),
        Cluster(case.devices // links.per_node, **links.model_dump()),
        float(pipelined_work([sum(stages[:-1]), stages[-1]], 1, passes)),
    )
    return found, held


def _call(operation: str, axis: str, num_ranks: int, count: int, num_bytes: int) -> GridCall:
    total = count * num_bytes
    return GridCall(operation=operation, axis=axis, num_ranks=num_ranks, count=count, bytes=total)


def choices() -> list[PublishedChoice]:
    """What won in each search, and what the law prefers."""
    file = listed()
    return [_choice(file, case) for case in file.cases]


def _choice(file: ChoicesFile, case: Search) -> PublishedChoice:
    found = [_layout(file, case, (tp, pp, mb), seconds) for tp, pp, mb, seconds in case.runs]
    won, preferred = min(found, key=lambda one: one.seconds), min(found, key=lambda one: one.key)
    pairs = [
        sorted(pair, key=lambda one: one.seconds)
        for pair in combinations(found, 2)
        if max(one.seconds for one in pair) >= APART * min(one.seconds for one in pair)
    ]
    return PublishedChoice(
        id=case.id,
        repository=file.repository,
        commit=file.commit,
        path=case.path,
        settings=case.model_dump(include={"model", "sequence", "devices", "batch"}),
        won=list(won.axes),
        preferred=list(preferred.axes),
        slower_share=preferred.seconds / won.seconds - 1,
        num_layouts=len(found),
        num_out_of_memory=case.num_out_of_memory,
        num_pairs=len(pairs),
        num_right=sum(fast.key[:1] < slow.key[:1] for fast, slow in pairs),
    )


def _layout(file: ChoicesFile, case: Search, axes: tuple[int, int, int], seconds: float) -> Layout:
    """Bounds that differ by less than a hundredth count as equal; then less memory is better."""
    found, held = law(file, case, axes)
    at_least, at_most = (float(f"{x:.3g}") for x in (found.at_least, found.at_most))
    return Layout(axes, seconds, (at_least, at_most, held, axes[2]))


def lines(found: list[PublishedChoice]) -> list[str]:
    """A line for each search."""
    head = f"{'search':<26}{'won':<12}{'by the law':<12}{'slower by':>10}  pairs in order"
    rows = [
        f"{one.id:<26}{'×'.join(map(str, one.won)):<12}{'×'.join(map(str, one.preferred)):<12}"
        f"{one.slower_share:10.1%}  {one.num_right} of {one.num_pairs}"
        for one in found
    ]
    return [head, *rows]

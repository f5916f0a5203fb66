"""What a run will need, said before it runs: the work of one step, by closed forms. No torch.

An experiment's `forecast(plan)` gives the `Work` of its busiest rank in one step, from the plan's
settings alone; `runners/forecast` measures a machine's primitives and turns work into bytes and
seconds with intervals. Nothing here may look at a trace: a forecast that knew the outcome would be
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Communication:
    """Collectives or messages of one kind in one step, as one rank takes part in them.

    Attributes:
        operation: all_reduce, all_gather, reduce_scatter, broadcast, send …
        num_bytes: payload of all its calls together.
        count: calls.
        num_ranks: that take part.
        hidden_share: how much of it can pass while the rank computes, 0 to 1.
    """

    operation: str
    num_bytes: int
    count: int = 1
    num_ranks: int = 2
    hidden_share: float = 0.0


@dataclass(frozen=True)
class Work:
    """One step of the busiest rank, and what it holds at its peak.

    Attributes:
        peak_bytes: above the start, as the memory meter sees it; None: not predicted.
        flops: multiplications and additions of matrix products, forward and backward.
        moved_bytes: read and written by everything elementwise.
        block_bytes: of the typical tensor that is so passed over; large ones are slow. 0: not said,
            then as many bytes as an operation moves on average.
        smooth_values: that go through a GELU, a softmax or a layer norm, forward or backward; their
            arithmetic takes longer than passing over them. A score of attention counts for some
            fifteen: fused attention goes over it several times in both directions.
        matrix_rows: rows of its typical matrix product, as many as a batch has; few rows are slow.
            0: not said, then as many as it has columns.
        num_products: how many matrix products the flops are. 0: not said, then a sixth of all
            operations.
        num_operations: torch operations that are started, as a dispatch mode counts them: forward,
            backward and update together.
        optimizer_parameters: parameters that this rank updates.
        optimizer: which update rule.
        reductions: what is communicated.
        num_busy_ranks: ranks that compute at the same time, and share the machine's cores.
        num_sequential: how many times this work passes one after another before the step ends, as
            the stages of a model do for a single batch.
        extra_seconds: what is set rather than measured: a paced stage, a sleep.
    """

    peak_bytes: int | None = None
    flops: float = 0.0
    moved_bytes: float = 0.0
    num_operations: int = 0
    optimizer_parameters: int = 0
    optimizer: Literal["sgd", "adam", "fused_adam"] = "sgd"
    communication: tuple[Communication, ...] = ()
    block_bytes: int = 0
    smooth_values: float = 0.0
    matrix_rows: int = 0
    num_products: int = 0
    num_busy_ranks: int = 1
    num_sequential: float = 1.0
    extra_seconds: float = 0.0


@dataclass(frozen=True)
class Choice:
    """A question that is answered before the runs: which of them will be best?

    Attributes:
        name: unique in its experiment.
        question: in words, as a page asks it.
        runs: names of runs of the experiment, at least two.
        by: the least of what decides: the median step, or the highest peak among the ranks.
    """

    name: str
    question: str
    runs: tuple[str, ...]
    by: Literal["step_seconds", "peak_bytes"] = "step_seconds"


def stack_work(widths: Sequence[int], rows: int, *, momentum: bool = False) -> Work:
    """One step of a stack of linear layers with a ReLU between each two, updated by SGD.

    Forward, cross-entropy, backward and update on one device; whoever adds ranks replaces what
    they change. Of every layer's output and its gradient: the product writes, the ReLU reads and
    writes, its gradient reads two and writes one, the bias's gradient reads, and the product that
    gives the layer before its gradient writes.
    """
    num_layers = len(widths) - 1
    passes = 8 * sum(widths[1:]) + 8 * widths[-1]
    return Work(
        flops=mlp_flops(widths, rows),
        matrix_rows=rows,
        num_products=3 * num_layers - 1,
        moved_bytes=float(FLOAT_BYTES * rows * passes),
        block_bytes=FLOAT_BYTES * rows * max(widths[1:]),
        num_operations=(22 if momentum else 18) * num_layers + 6,
        optimizer_parameters=mlp_parameters(widths),
    )


SCORE_PASSES = 15


def transformer_values(
    *,
    tokens: int,
    layers: int,
    width: int,
    hidden: int,
    num_heads: int,
    length: int,
    vocabulary: int,
) -> float:
    """Values of a transformer's step that pass through smooth functions, forward and backward.

    A block's GELU and its two norms, and every score of attention; at the end a norm and the loss.
    """
    block = 2 * hidden + 2 * 2 * width + SCORE_PASSES * num_heads * length
    return float(tokens * (layers * block + 2 * width + 2 * vocabulary))


def teacher_bytes(num_samples: int, num_features: int, num_classes: int) -> int:
    """What `teach` holds at its peak, in double precision.

    All rows, their linear scores, and two hidden layers of four units a class: the layer, and its
    half on the way to the scores.
    """
    return 8 * num_samples * (num_features + num_classes + 2 * 4 * num_classes)


def mlp_flops(widths: Sequence[int], rows: int) -> float:
    """Of one step of a stack of linear layers: forward, and backward without the first input's.

    2·rows·in·out for each layer forward, as much again for its weight's gradient, and once more
    for its input's gradient, which the first layer does not need.
    """
    pairs = list(pairwise(widths))
    forward = sum(2.0 * rows * a * b for a, b in pairs)
    first = 2.0 * rows * pairs[0][0] * pairs[0][1]
    return 3 * forward - first


def layer_parameters(widths: Sequence[int]) -> list[int]:
    """Weights and biases of each linear layer of a stack."""
    return [a * b + b for a, b in pairwise(widths)]


def mlp_parameters(widths: Sequence[int]) -> int:
    """Weights and biases of a stack of linear layers."""
    return sum(layer_parameters(widths))

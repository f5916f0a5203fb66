"""Closed forms of a stack of linear layers. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

FLOAT_BYTES = 4
LABEL_BYTES = 8


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

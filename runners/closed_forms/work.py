"""Closed forms of a stack of linear layers. No torch."""

from collections.abc import Sequence
from itertools import pairwise

FLOAT_BYTES = 4
LABEL_BYTES = 8


def layer_parameters(widths: Sequence[int]) -> list[int]:
    """Weights and biases of each linear layer of a stack."""
    return [a * b + b for a, b in pairwise(widths)]


def mlp_parameters(widths: Sequence[int]) -> int:
    """Weights and biases of a stack of linear layers."""
    return sum(layer_parameters(widths))

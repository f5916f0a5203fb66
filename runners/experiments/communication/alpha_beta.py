"""The α–β model of a transfer: t = α + β·bytes, fitted to measured times. Plain Python.

In: how many bytes, and how long each took. Out: α in seconds, β in seconds a byte. Times span some
orders of magnitude, so what is made least is the square of the *relative* error: each size then
weighs alike, and α is not lost under the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AlphaBeta(NamedTuple):
    """What a transfer costs to start, and then by the byte; seconds, and seconds a byte."""

    alpha: float
    beta: float

    def seconds(self, num_bytes: float) -> float:
        """What the model says a transfer takes."""
        return self.alpha + self.beta * num_bytes


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> AlphaBeta:
    """The α and β of least relative squares.

    Args:
        sizes: bytes of each transfer; at least two of them differ.
        seconds: what each took, above zero.

    Raises:
        ValueError: there are no two sizes, or a time is not above zero.
    """
    if len(set(sizes)) < 2 or min(seconds) <= 0:
        raise ValueError("a fit needs two sizes, and times above zero")
    weights = [1 / t**2 for t in seconds]
    total = sum(weights)
    mean_size = sum(w * s for w, s in zip(weights, sizes, strict=True)) / total
    mean_time = sum(w * t for w, t in zip(weights, seconds, strict=True)) / total
    beta = sum(
        w * (s - mean_size) * (t - mean_time)
        for w, s, t in zip(weights, sizes, seconds, strict=True)
    ) / sum(w * (s - mean_size) ** 2 for w, s in zip(weights, sizes, strict=True))
    return AlphaBeta(mean_time - beta * mean_size, beta)

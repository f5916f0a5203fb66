"""From which size on the second of two ways is faster: by interpolation, with its spread. Pure.

In: sizes, and for each of them raw times of both ways. Out: the size at which their medians would
be equal, on logarithmic scales, and how it scatters where the samples are drawn anew.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NUM_DRAWS = 500
TAIL = 0.05  # left out at each end of the spread

Times = Sequence[Sequence[float]]


@dataclass(frozen=True)
class BreakEven:
    """Where the second way begins to be faster.

    Attributes:
        size: interpolated; where it lies outside of the sizes, the nearest of them, as a bound.
        place: `inside` the sizes; `below` them, where the second way is faster at all of them;
            `beyond` them, where it is not faster at the largest.
    """

    size: float
    place: Literal["inside", "below", "beyond"]


def break_even(sizes: Sequence[int], first: Times, second: Times) -> BreakEven:
    """The size from which on the second way is faster, at every size above.

    Args:
        sizes: ascending.
        first: seconds of the first way, some for each size.
        second: seconds of the second way.
    """
    gains = [
        math.log(statistics.median(a) / statistics.median(b))
        for a, b in zip(first, second, strict=True)
    ]
    last_loss = max((i for i, gain in enumerate(gains) if gain <= 0), default=None)
    if last_loss is None:
        return BreakEven(float(sizes[0]), "below")
    if last_loss == len(sizes) - 1:
        return BreakEven(float(sizes[-1]), "beyond")
    low, high = (math.log(sizes[last_loss + step]) for step in (0, 1))
    share = -gains[last_loss] / (gains[last_loss + 1] - gains[last_loss])
    return BreakEven(math.exp(low + share * (high - low)), "inside")


@dataclass(frozen=True)
class Spread:
    """How a break-even scatters.

    Attributes:
        low: one draw in twenty lies below; a bound where it lies outside of the sizes.
        high: one in twenty lies above; likewise.
        inside_share: of the draws, those whose break-even lies inside the sizes.
    """

    low: float
    high: float
    inside_share: float


def spread(sizes: Sequence[int], first: Times, second: Times, seed: int) -> Spread:
    """Draw every set of samples anew, with replacement, and look where the break-evens lie."""
    source = random.Random(seed)
    found: list[BreakEven] = []
    for _ in range(NUM_DRAWS):
        drawn = [
            [source.choices(seconds, k=len(seconds)) for seconds in way] for way in (first, second)
        ]
        found.append(break_even(sizes, *drawn))
    ordered = sorted(one.size for one in found)
    cut = int(TAIL * NUM_DRAWS)
    inside = sum(one.place == "inside" for one in found)
    return Spread(ordered[cut], ordered[-1 - cut], inside / NUM_DRAWS)

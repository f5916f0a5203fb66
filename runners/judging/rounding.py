"""How far two computations of the same tensor may differ, because they add in another order.

In: tensors, and the error that one computation itself has against float64. Out: differences, and
how large they may be. One rule for all that compares tensors: a difference is rounding up to so
many times the larger of that error and one eps of the tensor's scale (`allowance`).

| regime | constant | why |
|---|---|---|
| the largest difference of an element, of labs and tests | `ELEMENT` | a maximum lies far out |
| the norm of a difference, of `verify` | `NORM` | elements average; drawn programs reach 1.5 |
| parameters that were updated alike on two ranks | `REPLICAS` | relative; no float64 is at hand |
| a number that a training has carried on | `traces/tolerance.py` | the reference measures it |
| bytes and counts of one trace | none, they are equal | `traces/invariants.py` |

No torch is imported here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

ELEMENT = 16
NORM = 4
REPLICAS = 1e-5


def allowance(roundings: float, error: float, eps: float, scale: float) -> float:
    """The largest difference that is rounding: `roundings` × max(`error`, `eps` × `scale`).

    `roundings` is `ELEMENT` or `NORM`; `error` that of the same computation, in the precision that
    is judged, against float64; `eps` that precision's, because a tensor that is zero in exact
    arithmetic has no error of its own; `scale` that of the tensor, or of those added with it.
    """
    return roundings * max(error, eps * scale)


def distance(a: Tensor, b: Tensor) -> float:
    """The norm of the difference of two tensors."""
    return float((a.double() - b.double()).norm())


def relative(a: Tensor | None, b: Tensor | None) -> float:
    """The largest difference over `a`'s largest finite element; infinite where shapes differ."""
    if a is None or b is None or a.shape != b.shape:
        return math.inf
    if not a.numel():
        return 0.0
    is_same = (a == b) | (a.isnan() & b.isnan())
    difference = (a.double() - b.double()).masked_fill(is_same, 0.0).abs().max().item()
    return difference / max(a.double().nan_to_num(0, 0, 0).abs().max().item(), 1e-30)


def are_apart(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether replicas of a tensor differ by more than rounding."""
    return not relative(a, b) <= REPLICAS


def ratio(held: Tensor, expected: Tensor) -> float:
    """The factor times which one tensor is nearest to another, by least squares."""
    flat = expected.double().flatten()
    return float((held.double().flatten() @ flat / (flat @ flat).clamp_min(1e-300)).item())

"""How much longer each feature of a step takes than its primitive: weights, fitted on runs. Pure.

In: steps, as seconds by feature, and what each took. Out: a weight by feature. The sum over runs
of the errors' logarithms is made small, with outliers counted linearly, and weights are drawn
towards where they begin: `PRIORS`. The less the runs say of a feature, the nearer it stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runners.forecast.replay import COMMUNICATING, COMPUTING, FIXED, Seconds

# A weight to begin with, and by how much its logarithm may differ from it, as a standard deviation.
# Primitives know arithmetic best. What Python does around an operation takes as long as many cheap
# operations; that a collective runs beside computing costs the computing some of its time.
PRIORS: dict[str, tuple[float, float]] = {
    **{name: (1.0, 0.3) for name in (*COMPUTING, *COMMUNICATING) if name not in FIXED},
    "dtensor": (20.0, 1.0),
    "fsdp": (100.0, 1.0),
    "stage": (100.0, 1.0),
    "optimizer": (1.5, 0.5),
    "other": (1.0, 0.5),
    "touch": (0.7, 0.7),
    "hidden": (1.0, 0.5),
    "interference": (0.3, 0.7),
    "collective": (1.0, 0.5),
    "queued": (1.0, 0.5),
    "message": (1.0, 0.5),
}
BEGIN = {name: weight for name, (weight, _) in PRIORS.items()}
TYPICAL_ERROR = 0.15  # of a logarithm; larger ones count linearly
MOST_ROUNDS, LEAST_CHANGE = 60, 1e-3  # of a logarithm


@dataclass(frozen=True)
class Taken:
    """What a step is expected to take, by feature, and what it took."""

    parts: Seconds
    seconds: float


def fitted_weights(taken: Sequence[Taken], begin: Mapping[str, float] = BEGIN) -> dict[str, float]:
    """The weights with which the steps' expected seconds come nearest to what they took.

    Args:
        taken: steps.
        begin: weights to begin with.
    """
    logarithms = {name: math.log(begin.get(name, weight)) for name, weight in BEGIN.items()}
    for _ in range(MOST_ROUNDS):
        steps, largest = [_Linear.of(one, logarithms) for one in taken], 0.0
        for name in logarithms:
            change = _change(name, steps, logarithms[name])
            largest = max(largest, abs(change))
            logarithms[name] += change
            for one in steps:
                one.error -= change * one.shares.get(name, 0.0)
        if largest < LEAST_CHANGE:
            break
    return {name: float(f"{math.exp(value):.4g}") for name, value in logarithms.items()}


@dataclass
class _Linear:
    """A step near the present weights.

    Attributes:
        shares: of the step, by feature.
        error: the logarithm of what it took over what is expected.
        importance: less than 1 for an outlier.
    """

    shares: dict[str, float]
    error: float
    importance: float

    @classmethod
    def of(cls, one: Taken, logarithms: Mapping[str, float]) -> _Linear:
        seconds = {
            name: value * (math.exp(logarithms[name]) if name in logarithms else 1.0)
            for name, value in one.parts.items()
        }
        total = sum(seconds.values())
        error = math.log(one.seconds / total)
        shares = {name: value / total for name, value in seconds.items()}
        return cls(shares, error, TYPICAL_ERROR / max(TYPICAL_ERROR, abs(error)))


def _change(name: str, steps: Sequence[_Linear], logarithm: float) -> float:
    """By how much a weight's logarithm should change, the others as they are."""
    prior, deviation = PRIORS[name]
    trust = (TYPICAL_ERROR / deviation) ** 2
    pulls = trust * (math.log(prior) - logarithm)
    stiffness = trust
    for one in steps:
        share = one.shares.get(name, 0.0)
        pulls += one.importance * share * one.error
        stiffness += one.importance * share * share
    return max(-0.5, min(0.5, pulls / stiffness))

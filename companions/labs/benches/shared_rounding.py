"""The bench of `shared_rounding`: SGD on replicas in bfloat16, rounded stochastically."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

# Powers of two, so that float32 has all averages and new weights.
LEARNING_RATE, UNIT = 2.0**-6, 2.0**-8
DIFFER, FAR = "weights that differ between ranks", "roundings to another number"
BIAS, CORRELATED = "millionths of a spacing on average", "millionths of a correlation"
CHANGED = "other states of the default generator"


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, and the elements of each of two weights."""
    return {"steps": draw.randrange(3, 6), "elements": 8 * draw.randrange(500, 700)}


def _gradients(case: LabCase, rank: int) -> Tensor:
    """Those of a rank for both weights, the same in all steps and positive; some are zero."""
    shape = 2, case.settings["elements"]
    sizes = torch.randint(1, 32, shape, generator=case.generator(rank)) * UNIT
    sizes[:, ::8] = 0
    return sizes


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, counts of weights and errors after the steps of the reader's `update`, metered."""
    gradients = _gradients(case, rank.rank)
    weights = [*(1 + torch.rand(gradients.shape, generator=case.generator())).bfloat16()]
    for weight in weights:
        weight[::4] *= -2
        weight[1::4] /= 4
    state, seen = torch.manual_seed(rank.rank).get_state(), [torch.stack(weights).double()]
    with rank.metered({"gradients": gradients}, {"weights": weights}):
        for step in range(case.settings["steps"]):
            program.update(weights, [*gradients], LEARNING_RATE, case.seed, step)
            seen.append(torch.stack(weights).double())
    mean = sum(_gradients(case, one) for one in range(case.world_size)) / case.world_size
    exact = torch.stack(seen[:-1]) - LEARNING_RATE * mean
    errors = (torch.stack(seen[1:]) - exact) / 2.0 ** (exact.frexp().exponent - 8)
    correlations = errors.flatten(0, 1).corrcoef().nan_to_num(1).abs().triu(1)
    first = seen[-1].clone()
    dist.broadcast(first, 0)
    return {
        DIFFER: (seen[-1] != first).sum(),
        FAR: (errors.abs() >= 1).sum(),
        BIAS: 1e6 * errors.mean().abs(),
        CORRELATED: 1e6 * correlations.max(),
        CHANGED: (state != torch.get_rng_state()).any(),
    }


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """Nothing: chance decides the weights, and the bench knows their distribution."""
    return {}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: equal replicas; neighbours, by chance; own generators; gradients."""
    (steps, elements), n = case.settings.values(), case.world_size
    roundings = 2 * steps * elements
    sent = 2 * (n - 1) / n * ELEMENT_BYTES * roundings
    return [
        laws.counts("same", DIFFER, 0, verb="has"),
        laws.counts("neighbours", FAR, 0),
        laws.counts("unbiased", BIAS, int(3e6 / roundings**0.5), or_less=True, verb="erred by"),
        laws.counts("fresh", CORRELATED, int(6e6 / elements**0.5), or_less=True, verb="has"),
        laws.counts("own", CHANGED, 0, verb="left"),
        laws.sends_in_all(sent + 64),
    ]

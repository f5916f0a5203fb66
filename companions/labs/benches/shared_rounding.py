"""The bench of `shared_rounding`: SGD on replicas in bfloat16, rounded stochastically."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.runners.judging.comparison import Comparison, Tensors, on_each_rank
from proofbook.runners.judging.ranks import JudgedRank, RankResult

# Powers of two, so that float32 has all averages and new weights.
LEARNING_RATE, UNIT = 2.0**-6, 2.0**-8
CHANGED = "other states of the default generator"


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, and the elements of each of two weights."""
    return {"steps": draw.randrange(3, 6), "elements": 8 * draw.randrange(500, 700)}


def _weights(case: LabCase) -> Tensor:
    """Two weights in bfloat16, of several sizes and both signs."""
    elements = case.settings["elements"]
    signed = torch.tensor([1.0, -2.0, 0.5, -1.0]).repeat(elements // 4)
    return ((1 + torch.rand((2, elements), generator=case.generator())) * signed).bfloat16()


def _gradients(case: LabCase, rank: int) -> Tensor:
    """Those of a rank, the same in all steps and with the signs of the weights; some are zero."""
    weights = _weights(case)
    sizes = torch.randint(1, 32, weights.shape, generator=case.generator(rank))
    sizes[:, ::8] = 0
    return sizes * UNIT * weights.sign().float()


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, weights after the steps of the reader's `update`, metered; errors in spacings."""
    weights, gradients = [*_weights(case)], [*_gradients(case, rank.rank)]
    mean = sum(_gradients(case, one) for one in range(case.world_size)) / case.world_size
    torch.manual_seed(rank.rank)
    state, seen = torch.get_rng_state(), [torch.stack(weights).double()]
    with rank.metered({"gradients": gradients}, {"weights": weights}):
        for step in range(case.settings["steps"]):
            program.update(weights, gradients, LEARNING_RATE, case.seed, step)
            seen.append(torch.stack(weights).double())
    exact = torch.stack(seen[:-1]) - LEARNING_RATE * mean
    spacing = 2.0 ** (exact.frexp().exponent - 8)
    errors = (torch.stack(seen[1:]) - exact) / spacing * exact.sign()
    changed = not torch.equal(state, torch.get_rng_state())
    return {"weights": seen[-1], "errors": errors.flatten(0, 1), CHANGED: torch.tensor(changed)}


def _of_errors(id_: str, what: str, largest: Callable[[Tensor], float], limit: float) -> Requirement:
    """The requirement that a number of the errors is below a limit."""

    def wrong(rank: RankResult) -> str:
        number = largest(rank.returned["errors"])
        return "" if number < limit else f"has {what} of {number:.3g}, allowed below {limit:.3g}"

    return Requirement(id_, lambda ranks: on_each_rank(what, ranks, wrong))


def _correlation(errors: Tensor) -> float:
    """The largest one between errors of two weights or steps."""
    return float(errors.corrcoef().nan_to_num(1).abs().triu(1).max())


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: equal replicas; neighbours, by chance; own generators; gradients."""
    (steps, elements), n = case.settings.values(), case.world_size
    gradients = 2 * ELEMENT_BYTES * elements
    of_all = 3 / (2 * steps * elements) ** 0.5

    def same(ranks: Sequence[RankResult]) -> Iterator[Comparison]:
        first = ranks[0].returned["weights"]
        others = "has other weights than rank 0"
        equal = functools.partial(torch.equal, first)
        return on_each_rank("weights", ranks, lambda r: others * (not equal(r.returned["weights"])))

    return [
        Requirement("same", same),
        _of_errors("neighbours", "an error", lambda errors: float(errors.abs().max()), 1),
        _of_errors("unbiased", "a mean error", lambda errors: abs(float(errors.mean())), of_all),
        _of_errors("fresh", "a correlation", _correlation, 6 / elements**0.5),
        laws.counts("own", CHANGED, 0, verb="left"),
        laws.sends_in_all(steps * 2 * (n - 1) / n * gradients + 64),
    ]

"""The bench of `lost_updates`: momentum and a master, in float32, of a weight in bfloat16."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

MOMENTUM, LEARNING_RATE = 0.75, 0.02
FAR = "copies of numbers that are not the nearest to their master"


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, microbatches of a rank, and elements of the weight."""
    settings = {"steps": (4, 7), "parts": (3, 6), "elements": (500, 900)}
    return {name: draw.randrange(*limits) for name, limits in settings.items()}


def _drawn(case: LabCase, *place: int) -> Tensor:
    """The weight, or its gradient of a rank's microbatch in a step, in bfloat16."""
    return normal((case.settings["elements"],), case.generator(*place), torch.bfloat16)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the master that the reader's `train` returns, and how many copies are far."""
    weight, (steps, parts, _), far = _drawn(case), case.settings.values(), torch.zeros(())

    def gradient(copy: Tensor, step: int, part: int) -> Tensor:
        exact = one_process(case, torch.float64, step)["master"]
        limit = (0.5 + 2**-10) * 2.0 ** (exact.frexp().exponent - 8)  # float32 rounds, too
        is_near = ((copy - exact).abs() <= limit) & (copy.dtype == torch.bfloat16)
        far.add_((~is_near).sum())
        return _drawn(case, rank.rank, step, part)

    with rank.metered({"weight": weight}):
        master = program.train(weight, gradient, steps, parts, LEARNING_RATE, MOMENTUM)
    return {"master": master, FAR: far}


def one_process(case: LabCase, dtype: torch.dtype, steps: int | None = None) -> Tensors:
    """A case's master, by name, after all steps or these."""
    places = [(r, p) for r in range(case.world_size) for p in range(case.settings["parts"])]
    master, velocity = _drawn(case).to(dtype), torch.zeros((), dtype=dtype)
    for step in range(case.settings["steps"] if steps is None else steps):
        each = [_drawn(case, rank, step, part).to(dtype) for rank, part in places]
        velocity = MOMENTUM * velocity + torch.stack(each).mean(0)
        master = master - LEARNING_RATE * velocity
    return {"master": master}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: the master; its copies in bfloat16; gradients, once a step."""
    steps, _, elements = case.settings.values()
    by_ring = 2 * (case.world_size - 1) / case.world_size
    return [
        laws.same_as_one_process(one_process, case),
        laws.counts("copies", FAR, 0, verb="used"),
        laws.sends_in_all(steps * by_ring * ELEMENT_BYTES * elements + 64),
    ]

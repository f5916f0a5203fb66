"""The bench of `lost_updates`: momentum and masters, in float32, of weights in bfloat16."""

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
FAR = "weights that are not the nearest to a master"


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, microbatches of a rank, and sizes of weights."""
    settings = {"steps": (4, 7), "parts": (3, 6), "width": (10, 20), "hidden": (20, 40)}
    return {name: draw.randrange(*limits) for name, limits in settings.items()}


def _drawn(case: LabCase, *place: int) -> dict[str, Tensor]:
    """Weights, or gradients of a rank's microbatch in a step, in bfloat16."""
    shape = case.settings["width"], case.settings["hidden"]
    generator = case.generator(*place)
    return {name: normal(shape, generator, torch.bfloat16) for name in ("first", "second")}


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the masters that the reader's `train` returns, and how many copies are far."""
    weights, used = _drawn(case), []

    def gradients(copies: Mapping[str, Tensor], step: int, part: int) -> dict[str, Tensor]:
        used.extend((step, name, copy.clone()) for name, copy in copies.items())
        return _drawn(case, rank.rank, step, part)

    settings = case.settings["steps"], case.settings["parts"], LEARNING_RATE, MOMENTUM
    with rank.metered({"weights": weights}):
        masters = program.train(weights, gradients, *settings)
    exact = [one_process(case, torch.float64, step) for step in range(settings[0])]
    far = sum((~_nearest(copy, exact[step][name])).sum() for step, name, copy in used)
    return {**masters, FAR: torch.as_tensor(far)}


def _nearest(copy: Tensor, exact: Tensor) -> Tensor:
    """Whether each element is in bfloat16 and half a spacing away, up to float32's rounding."""
    spacing = 2.0 ** (exact.frexp().exponent - 8)
    return (copy - exact).abs().le(spacing * (0.5 + 2**-10)) & (copy.dtype == torch.bfloat16)


def one_process(case: LabCase, dtype: torch.dtype, steps: int | None = None) -> Tensors:
    """A case's masters, by name, after all steps or these."""
    masters = {name: one.to(dtype) for name, one in _drawn(case).items()}
    velocities = {name: torch.zeros_like(one) for name, one in masters.items()}
    places = [(r, p) for r in range(case.world_size) for p in range(case.settings["parts"])]
    for step in range(case.settings["steps"] if steps is None else steps):
        each = [_drawn(case, rank, step, part) for rank, part in places]
        for name, velocity in velocities.items():
            mean = torch.stack([one[name].to(dtype) for one in each]).mean(0)
            masters[name] -= LEARNING_RATE * velocity.mul_(MOMENTUM).add_(mean)
    return masters


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: the masters; their copies in bfloat16; gradients, once a step."""
    steps, _, width, hidden = case.settings.values()
    num_bytes = 2 * (case.world_size - 1) / case.world_size * ELEMENT_BYTES * 2 * width * hidden
    return [
        laws.same_as_one_process(one_process, case),
        laws.counts("copies", FAR, 0, verb="used"),
        laws.sends_in_all(steps * num_bytes + 64),
    ]

"""The bench of `experts_doubled`: a dense layer on all ranks, an expert on each, and clipping."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import gelu, mse_loss

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.companions.labs.training import Batches, batches_of, initial_weights, trained
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

# The learning rate, the largest norm, and weight decay: a lower rate for the experts, which makes
# up for what is too large in their gradient, would decay them too little.
SGD = (0.5, 1.0, 0.1)
OUTLIER = 10.0  # in every second step, by which targets are larger: these steps alone are clipped
SINGLE_NUMBERS_BYTES = 128  # such as squares, and a loss that a program averages over the ranks


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, the width, and samples for each rank and its expert."""
    samples = world_size * world_size * draw.randrange(3, 6)
    return {"steps": draw.randrange(3, 6), "samples": samples, "width": draw.randrange(12, 20)}


def _weights(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    width = case.settings["width"]
    shapes = {"dense": (width, width), "experts": (case.world_size, width, width)}
    return initial_weights(case, shapes, dtype)


def _batches(case: LabCase, dtype: torch.dtype) -> Batches:
    batches = batches_of(case, (case.settings["samples"], case.settings["width"]), dtype)
    return [(inputs, t * OUTLIER ** (step % 2)) for step, (inputs, t) in enumerate(batches)]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's weights and the losses after the reader's `train`, metered."""
    weights, batches = _weights(case, torch.float32), _batches(case, torch.float32)
    with rank.metered({"weights": weights, "batches": batches}):
        own, losses = program.train(weights, batches, *SGD)
    return {**own, "losses": torch.tensor([float(loss) for loss in losses])}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's weights and losses, by name, with all experts in one process."""
    return trained(_weights(case, dtype), _batches(case, dtype), _loss, *SGD)


def _loss(weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    hidden, experts = (inputs @ weights["dense"]).tanh(), weights["experts"]
    in_turn = hidden.view(-1, len(experts), 1, hidden.shape[1])  # sample i to expert i mod n
    return mse_loss(hidden + gelu(in_turn @ experts).view_as(hidden), targets)


def _own(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    return tensor[rank] if name == "experts" else tensor


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; activations, and one dense gradient."""
    settings, n = case.settings, case.world_size
    activation = ELEMENT_BYTES * settings["samples"] // n * settings["width"]
    num_bytes = 4 * activation + 2 * ELEMENT_BYTES * settings["width"] ** 2
    in_all = (n - 1) / n * settings["steps"] * num_bytes + SINGLE_NUMBERS_BYTES
    return [laws.same_as_one_process(one_process, case, _own), laws.sends_in_all(in_all)]

"""The bench of `balance_of_batch`: a router with a balancing loss, and tokens on all ranks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.companions.labs.training import Batches, batches_of, initial_weights, trained
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

LEARNING_RATE, COEFFICIENT = 0.5, 0.5
NUMBERS_BYTES = 16  # for each expert, such as its count as int64
SINGLE_NUMBERS_BYTES = 128  # such as a loss that a program averages over the ranks


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, tokens that ranks divide, the width, and experts."""
    return {
        "steps": draw.randrange(3, 6),
        "tokens": world_size * draw.randrange(8, 14),
        "width": draw.randrange(12, 20),
        "experts": draw.randrange(4, 7),
    }


def _weights(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    width, experts = case.settings["width"], case.settings["experts"]
    shapes = {"router": (width, experts), "experts": (experts, width)}
    return initial_weights(case, shapes, dtype)


def _batches(case: LabCase, dtype: torch.dtype) -> Batches:
    return batches_of(case, (case.settings["tokens"], case.settings["width"]), dtype)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's weights and the losses after the reader's `train`, metered."""
    weights, batches = _weights(case, torch.float32), _batches(case, torch.float32)
    with rank.metered({"weights": weights, "batches": batches}):
        own, losses = program.train(weights, batches, LEARNING_RATE, COEFFICIENT)
    return {**own, "losses": torch.tensor([float(loss) for loss in losses])}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's weights and losses, by name, with shares and probabilities of the whole batch."""
    return trained(_weights(case, dtype), _batches(case, dtype), _loss, LEARNING_RATE)


def _loss(weights: Mapping[str, Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
    probabilities = (tokens @ weights["router"]).softmax(1)
    weight, choice = probabilities.max(1, keepdim=True)
    outputs = weight * weights["experts"][choice[:, 0]] * tokens
    shares = torch.zeros_like(probabilities).scatter(1, choice, 1).mean(0)
    balance = len(shares) * (shares * probabilities.mean(0)).sum()
    return mse_loss(outputs, targets) + COEFFICIENT * balance


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; gradients, and numbers of experts."""
    settings, n = case.settings, case.world_size
    weights = ELEMENT_BYTES * 2 * settings["width"] * settings["experts"]
    in_a_step = weights + NUMBERS_BYTES * settings["experts"]
    num_bytes = 2 * (n - 1) / n * settings["steps"] * in_a_step + SINGLE_NUMBERS_BYTES
    return [laws.same_as_one_process(one_process, case), laws.sends_in_all(num_bytes)]

"""The bench of `norms_by_tokens`: an MLP under sequence parallelism, with its normalization."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, mse_loss

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.companions.labs.training import Batches, batches_of, initial_weights, trained
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

LEARNING_RATE, WEIGHT_DECAY = 0.5, 0.1  # which a lower rate for some weights would lower, too
SINGLE_NUMBERS_BYTES = 64  # such as a loss that a program adds up over the ranks
AXES: Mapping[str, int] = {"up": 1, "down": 0}  # along which ranks divide a weight


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, the width, and tokens and features that ranks divide."""
    return {
        "steps": draw.randrange(3, 6),
        "tokens": world_size * draw.randrange(6, 12),
        "width": draw.randrange(12, 20),
        "hidden": world_size * draw.randrange(4, 8),
    }


def _weights(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    width, hidden = case.settings["width"], case.settings["hidden"]
    shapes = {"scale": (width,), "shift": (width,), "up": (width, hidden), "down": (hidden, width)}
    return initial_weights(case, shapes, dtype)


def _batches(case: LabCase, dtype: torch.dtype) -> Batches:
    return batches_of(case, (case.settings["tokens"], case.settings["width"]), dtype)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's weights and the losses after the reader's `train`, metered."""
    weights, batches = _weights(case, torch.float32), _batches(case, torch.float32)
    with rank.metered({"weights": weights, "batches": batches}):
        own, losses = program.train(weights, batches, LEARNING_RATE, WEIGHT_DECAY)
    return {**own, "losses": torch.tensor([float(loss) for loss in losses])}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's whole weights and losses, by name, after SGD on undivided tokens."""
    own, batches = _weights(case, dtype), _batches(case, dtype)
    return trained(own, batches, _loss, LEARNING_RATE, weight_decay=WEIGHT_DECAY)


def _loss(weights: Mapping[str, Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
    scaled = layer_norm(tokens, tokens.shape[-1:]) * weights["scale"] + weights["shift"]
    return mse_loss(tokens + gelu(scaled @ weights["up"]) @ weights["down"], targets)


def _part(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    axis = AXES.get(name)
    return tensor if axis is None else tensor.chunk(world_size, axis)[rank]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; gathers and scatters, and small sums."""
    settings, n = case.settings, case.world_size
    activation = ELEMENT_BYTES * settings["tokens"] * settings["width"]
    normalization = 2 * ELEMENT_BYTES * settings["width"]
    num_bytes = settings["steps"] * (4 * activation + 2 * normalization)
    return [
        laws.same_as_one_process(one_process, case, _part),
        laws.sends_in_all((n - 1) / n * num_bytes + SINGLE_NUMBERS_BYTES),
    ]

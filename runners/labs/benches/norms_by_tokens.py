"""The bench of `norms_by_tokens`: an MLP under sequence parallelism, with its normalization."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, mse_loss

from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank
from proofbook.runners.labs import laws
from proofbook.runners.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal

LEARNING_RATE = 0.5
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
    weights = {}
    for place, (name, shape) in enumerate(shapes.items()):
        weights[name] = normal(shape, case.generator(0, place), dtype) / shape[0] ** 0.5
    return weights


def _batches(case: LabCase, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    shape = case.settings["tokens"], case.settings["width"]
    return [
        (
            normal(shape, case.generator(1, step), dtype),
            normal(shape, case.generator(2, step), dtype),
        )
        for step in range(case.settings["steps"])
    ]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's weights and the losses after the reader's `train`, metered."""
    weights, batches = _weights(case, torch.float32), _batches(case, torch.float32)
    with rank.metered({"weights": weights, "batches": batches}):
        trained, losses = program.train(weights, batches, LEARNING_RATE)
    return {**trained, "losses": torch.tensor([float(loss) for loss in losses])}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's whole weights and losses, by name, after SGD on undivided tokens."""
    weights = {name: weight.requires_grad_() for name, weight in _weights(case, dtype).items()}
    optimizer, losses = torch.optim.SGD(list(weights.values()), lr=LEARNING_RATE), []
    for tokens, targets in _batches(case, dtype):
        scaled = layer_norm(tokens, tokens.shape[-1:]) * weights["scale"] + weights["shift"]
        outputs = tokens + gelu(scaled @ weights["up"]) @ weights["down"]
        loss = mse_loss(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {name: one.detach() for name, one in weights.items()} | {"losses": torch.stack(losses)}


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

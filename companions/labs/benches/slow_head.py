"""The bench of `slow_head`: tensor parallelism with its own backward passes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

LEARNING_RATE, MOMENTUM = 0.2, 0.9
ALLOWED = ("new process group",)  # which DTensor makes where there is an accelerator
SINGLE_NUMBERS_BYTES = 64  # such as a loss that a program averages over the ranks


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, samples, sizes of layers; ranks divide `hidden`."""
    return {
        "steps": draw.randrange(3, 6),
        "samples": draw.randrange(48, 64),
        "features": draw.randrange(8, 16),
        "width": draw.randrange(16, 24),
        "hidden": world_size * draw.randrange(4, 7),
        "classes": draw.randrange(18, 26),
    }


def _weights(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    """The whole weights, in the order in which they are applied."""
    settings = case.settings
    sizes = [settings[name] for name in ("features", "width", "hidden", "width", "classes")]
    weights = {}
    for place, name in enumerate(("stem", "up", "down", "head")):
        shape = (sizes[place + 1], sizes[place])
        drawn_values = torch.randn(shape, generator=case.generator(0, place))
        weights[name] = (drawn_values / sizes[place] ** 0.5).to(dtype)
    return weights


def _batches(case: LabCase, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    settings, batches = case.settings, []
    for step in range(settings["steps"]):
        numbers = case.generator(1, step)
        inputs = torch.randn(settings["samples"], settings["features"], generator=numbers)
        classes = torch.randint(settings["classes"], (settings["samples"],), generator=numbers)
        batches.append((inputs.to(dtype), classes))
    return batches


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's weights and logged losses after the reader's `train`, metered."""
    weights, batches = _weights(case, torch.float32), _batches(case, torch.float32)
    with rank.metered({"weights": weights, "batches": batches}):
        trained, losses = program.train(weights, batches, LEARNING_RATE)
    return {**trained, "losses": torch.tensor([float(loss) for loss in losses])}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's whole weights and losses, by name, after SGD with momentum on undivided layers."""
    weights = {name: weight.requires_grad_() for name, weight in _weights(case, dtype).items()}
    optimizer = torch.optim.SGD(list(weights.values()), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for inputs, classes in _batches(case, dtype):
        hidden = functional.gelu((inputs @ weights["stem"].T).tanh() @ weights["up"].T)
        logits = hidden @ weights["down"].T @ weights["head"].T
        loss = functional.cross_entropy(logits, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    whole = {name: weight.detach() for name, weight in weights.items()}
    return {**whole, "losses": torch.stack(losses)}


def part(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """The part of a weight that a rank holds: rows of `up`, columns of `down`, the others whole."""
    axis = {"up": 0, "down": 1}.get(name)
    return tensor if axis is None else tensor.chunk(world_size, axis)[rank]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; bytes of two all-reduces a step."""
    settings, n = case.settings, case.world_size
    activations = ELEMENT_BYTES * settings["samples"] * settings["width"]
    all_reduces = 2 * settings["steps"] * activations
    # DTensor scatters `up` and `down` once, though all ranks have them.
    scattered = ELEMENT_BYTES * 2 * settings["width"] * settings["hidden"]
    by_ring = (n - 1) / n
    return [
        laws.same_as_one_process(one_process, case, part),
        laws.sends_in_all(by_ring * (2 * all_reduces + scattered) + SINGLE_NUMBERS_BYTES),
    ]

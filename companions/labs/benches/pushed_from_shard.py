"""The bench of `pushed_from_shard`: divided weights, and a server that needs whole ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import gelu, mse_loss

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.companions.labs.training import Batches, batches_of, initial_weights
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

LEARNING_RATE = 0.5
SINGLE_NUMBERS_BYTES = 64  # such as a loss that a program prints
AXES: Mapping[str, int] = {"up": 1, "down": 0}  # along which ranks divide a weight
SERVED = "server's {} after each update"  # the name of its weights


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, samples, the width, and features that ranks divide."""
    return {
        "steps": draw.randrange(3, 6),
        "samples": draw.randrange(12, 20),
        "width": draw.randrange(12, 20),
        "hidden": world_size * draw.randrange(4, 8),
    }


def _given(case: LabCase, dtype: torch.dtype) -> tuple[dict[str, Tensor], Batches]:
    width, hidden = case.settings["width"], case.settings["hidden"]
    shapes = {"up": (width, hidden), "down": (hidden, width), "bias": (width,)}
    batches = batches_of(case, (case.settings["samples"], width), dtype)
    return initial_weights(case, shapes, dtype), batches


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's weights after the reader's `train`, and the server's after each update."""
    weights, batches = _given(case, torch.float32)
    served = {name: [torch.zeros_like(weight)] for name, weight in weights.items()}

    def load(pushed: Mapping[str, Tensor]) -> None:
        for name, weight in pushed.items():
            served[name].append(served[name][-1].clone())
            served[name][-1][tuple(map(slice, weight.shape))] = weight

    with rank.metered({"weights": weights, "batches": batches}):
        trained = program.train(weights, batches, LEARNING_RATE, None if rank.rank else load)
    loaded = {SERVED.format(name): torch.stack(each)[1:] for name, each in served.items()}
    return {**loaded, **trained}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's whole weights, after each update and at the end, by name."""
    weights, batches = _given(case, dtype)
    optimizer = torch.optim.SGD([one.requires_grad_() for one in weights.values()], LEARNING_RATE)
    served: dict[str, list[Tensor]] = {SERVED.format(name): [] for name in weights}
    for inputs, targets in batches:
        outputs = gelu(inputs @ weights["up"]) @ weights["down"] + weights["bias"]
        optimizer.zero_grad()
        mse_loss(outputs, targets).backward()
        optimizer.step()
        for name, weight in weights.items():
            served[SERVED.format(name)].append(weight.detach().clone())
    after = {name: torch.stack(each) for name, each in served.items()}
    return after | {name: weight.detach() for name, weight in weights.items()}


def _part(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """The rank's part; of the server's weights, all on rank 0 and nothing elsewhere."""
    if name.startswith("server's"):
        return tensor[:0] if rank else tensor
    axis = AXES.get(name)
    return tensor if axis is None else tensor.chunk(world_size, axis)[rank]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: weights of server and ranks; sums of outputs, gathered weights."""
    settings, n = case.settings, case.world_size
    outputs = ELEMENT_BYTES * settings["samples"] * settings["width"]
    weights = ELEMENT_BYTES * 2 * settings["width"] * settings["hidden"]
    num_bytes = (n - 1) / n * settings["steps"] * (2 * outputs + weights)
    return [
        laws.same_as_one_process(one_process, case, _part),
        laws.sends_in_all(num_bytes + SINGLE_NUMBERS_BYTES),
    ]

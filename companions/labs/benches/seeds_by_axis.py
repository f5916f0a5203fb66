"""The bench of `seeds_by_axis`: dropout on a mesh of data and tensor ranks."""

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

LEARNING_RATE = 0.2
NUM_TENSOR_RANKS = 2
SINGLE_NUMBERS_BYTES = 64  # such as a loss that a program averages over the ranks
ALLOWED = ("new process group",)  # one for each axis
AXES: Mapping[str, int] = {"up": 1, "down": 0}  # along which tensor ranks divide a weight


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, samples of the data ranks, and sizes of layers."""
    return {
        "steps": draw.randrange(3, 6),
        "samples": world_size * draw.randrange(4, 8),
        "width": draw.randrange(12, 20),
        "hidden": NUM_TENSOR_RANKS * draw.randrange(8, 14),
    }


def mask(shape: Sequence[int], *numbers: int) -> Tensor:
    """A mask of dropout that these numbers decide: half of its values are zero, the others two."""
    generator = torch.Generator().manual_seed(random.Random(f"{numbers}").randrange(2**31))
    return 2.0 * torch.randint(2, list(shape), generator=generator)


def _weights(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    width, hidden = case.settings["width"], case.settings["hidden"]
    shapes = {"stem": (width, width), "up": (width, hidden), "down": (hidden, width)}
    return initial_weights(case, shapes, dtype)


def _batches(case: LabCase, dtype: torch.dtype) -> Batches:
    return batches_of(case, (case.settings["samples"], case.settings["width"]), dtype)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's weights and the losses after the reader's `train`, metered."""
    weights, batches = _weights(case, torch.float32), _batches(case, torch.float32)
    with rank.metered({"weights": weights, "batches": batches}):
        trained, losses = program.train(weights, batches, LEARNING_RATE, mask)
    return {**trained, "losses": torch.tensor([float(loss) for loss in losses])}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's whole weights and losses, by name, with the masks of all data and tensor ranks."""
    num_data = case.world_size // NUM_TENSOR_RANKS
    weights = {name: weight.requires_grad_() for name, weight in _weights(case, dtype).items()}
    optimizer, losses = torch.optim.SGD(list(weights.values()), lr=LEARNING_RATE), []
    for step, batch in enumerate(_batches(case, dtype)):
        of_ranks = []
        parts = zip(*(tensor.chunk(num_data) for tensor in batch), strict=True)
        for data, (inputs, targets) in enumerate(parts):
            residual = (inputs @ weights["stem"]).tanh()
            shape = len(inputs), case.settings["hidden"] // NUM_TENSOR_RANKS
            inner = [mask(shape, step, data, tensor) for tensor in range(NUM_TENSOR_RANKS)]
            hidden = gelu(residual @ weights["up"]) * torch.cat(inner, 1).to(dtype)
            outer = mask(residual.shape, step, data).to(dtype)
            of_ranks.append(mse_loss(residual + hidden @ weights["down"] * outer, targets))
        loss = torch.stack(of_ranks).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {name: one.detach() for name, one in weights.items()} | {"losses": torch.stack(losses)}


def _part(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    axis = AXES.get(name)
    if axis is None:
        return tensor
    return tensor.chunk(NUM_TENSOR_RANKS, axis)[rank % NUM_TENSOR_RANKS]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; two sums of activations, one of gradients."""
    settings = case.settings
    num_data = case.world_size // NUM_TENSOR_RANKS
    activation = ELEMENT_BYTES * settings["samples"] // num_data * settings["width"]
    parts = settings["width"] * settings["hidden"]  # of both weights on a rank
    gradients = ELEMENT_BYTES * (settings["width"] ** 2 + parts)
    by_ring = 2 * (case.world_size - 1) / case.world_size  # as if each ran over all ranks
    num_bytes = settings["steps"] * by_ring * (2 * activation + gradients)
    return [
        laws.same_as_one_process(one_process, case, _part),
        laws.sends_in_all(num_bytes + SINGLE_NUMBERS_BYTES),
    ]

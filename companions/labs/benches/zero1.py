"""The bench of `zero1`: Adam whose moments are sharded over the ranks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor, nn

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

NUM_STEPS = 3
LEARNING_RATE = 0.01
EPSILON = 0.01  # as large as the gradients, so that Adam does not hide a factor in them
GRADIENT_SCALE = 0.02
STORED = 4  # of the size of a shard: two moments, the values, and their gradient
SINGLE_NUMBERS_BYTES = 64  # such as a count of steps


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: sizes, of which ranks cannot divide all elements evenly."""
    width, num_words = draw.randrange(30, 50), draw.randrange(150, 200)
    even = num_words * width + width * width + width
    num_outputs = draw.randrange(10, 20) * world_size + (1 - even) % world_size
    return {"num_words": num_words, "width": width, "num_outputs": num_outputs}


def _shapes(case: LabCase) -> list[tuple[int, ...]]:
    width, num_words = case.settings["width"], case.settings["num_words"]
    return [(num_words, width), (width, width), (width,), (case.settings["num_outputs"],)]


def _parameters(case: LabCase, dtype: torch.dtype) -> list[nn.Parameter]:
    generator = case.generator()
    return [nn.Parameter(normal(shape, generator, dtype)) for shape in _shapes(case)]


def _gradients(case: LabCase, step: int, rank: int, dtype: torch.dtype) -> list[Tensor]:
    """What backward would leave on a rank: the gradients of its own samples."""
    generator = case.generator(step, rank)
    return [normal(shape, generator, dtype) * GRADIENT_SCALE for shape in _shapes(case)]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the parameters after three steps of the reader's `ShardedAdam` on a rank."""
    parameters = _parameters(case, torch.float32)
    gradients = [_gradients(case, step, rank.rank, torch.float32) for step in range(NUM_STEPS)]
    with rank.metered({"gradients": gradients}, trained={"parameters": parameters}):
        optimizer = program.ShardedAdam(
            list(parameters), rank.rank, rank.world_size, LEARNING_RATE, EPSILON
        )
        for of_step in gradients:
            for parameter, gradient in zip(parameters, of_step, strict=True):
                parameter.grad = gradient
            optimizer.step()
    return _by_name(parameters)


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's parameters, by name, after Adam's steps with the mean of the ranks' gradients."""
    parameters = _parameters(case, dtype)
    adam = torch.optim.Adam(parameters, lr=LEARNING_RATE, eps=EPSILON)
    for step in range(NUM_STEPS):
        of_ranks = [_gradients(case, step, rank, dtype) for rank in range(case.world_size)]
        for parameter, *gradients in zip(parameters, *of_ranks, strict=True):
            parameter.grad = torch.stack(gradients).mean(0)
        adam.step()
    return _by_name(parameters)


def _by_name(parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"parameter {index}": parameter.detach() for index, parameter in enumerate(parameters)}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: Adam's parameters; a reduce-scatter, all-gather a step; bytes kept."""
    shares = [-(-torch.Size(shape).numel() // case.world_size) for shape in _shapes(case)]
    share_bytes = ELEMENT_BYTES * sum(shares)  # each parameter padded; less where all are one
    in_steps = NUM_STEPS * case.world_size * share_bytes
    return [
        laws.same_as_one_process(one_process, case),
        laws.sends({"reduce_scatter": in_steps, "all_gather": in_steps}),
        laws.keeps_at_most(STORED * share_bytes + SINGLE_NUMBERS_BYTES, "state"),
    ]

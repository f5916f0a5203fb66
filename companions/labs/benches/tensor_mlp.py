"""The bench of `tensor_mlp`: an MLP of which each rank has some of the hidden features."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import (
    ELEMENT_BYTES,
    LabCase,
    Requirement,
    backward,
    gradient_of,
    normal,
)
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

NUM_BLOCKS = 2
# The axis along which ranks divide a parameter: columns of the first weight, rows of the second.
DIVIDED: Mapping[str, int] = {"first": 1, "first_bias": 0, "second": 0}
PARAMETERS = ("first", "first_bias", "second", "second_bias")


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens, width, hidden features that ranks divide, blocks."""
    return {
        "num_tokens": draw.randrange(12, 20),
        "width": draw.randrange(20, 32),
        "num_hidden": world_size * draw.randrange(16, 24),
        "num_blocks": NUM_BLOCKS,
    }


def _block(case: LabCase, block: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """The whole parameters of a block."""
    width, num_hidden = case.settings["width"], case.settings["num_hidden"]
    shapes = (width, num_hidden), (num_hidden,), (num_hidden, width), (width,)
    generator, parameters = case.generator(block), {}
    for name, shape in zip(PARAMETERS, shapes, strict=True):
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        parameters[name] = (numbers / shape[0] ** 0.5).to(dtype)
    return parameters


def _inputs(case: LabCase, dtype: torch.dtype) -> Tensor:
    """The inputs, which are the same on every rank."""
    shape = case.settings["num_tokens"], case.settings["width"]
    generator = case.generator(NUM_BLOCKS)
    return normal(shape, generator, dtype)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, outputs and gradients of residual blocks of the reader's `mlp` on a rank."""
    inputs = _inputs(case, torch.float32).requires_grad_()
    blocks = []
    for block in range(NUM_BLOCKS):
        whole = _block(case, block, torch.float32)
        blocks.append(
            {
                name: _own(name, parameter, rank.rank, case.world_size).clone().requires_grad_()
                for name, parameter in whole.items()
            }
        )
    with rank.metered({"inputs": inputs, "blocks": blocks}):
        outputs = inputs
        for parameters in blocks:
            outputs = outputs + program.mlp(outputs, **parameters)
        backward(outputs.square().mean())
    return _named(
        outputs.detach(),
        gradient_of(inputs),
        [{name: gradient_of(value) for name, value in parameters.items()} for parameters in blocks],
    )


def _own(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """The part of a tensor that a rank has, by the last word of its name; else all of it."""
    axis = DIVIDED.get(name.split()[-1])
    return tensor if axis is None else tensor.chunk(world_size, axis)[rank]


def _named(outputs: Tensor, inputs: Tensor, blocks: Sequence[Mapping[str, Tensor]]) -> Tensors:
    """Results in the order of backward, because a grade shows the first difference."""
    named = {"outputs": outputs}
    for block in reversed(range(NUM_BLOCKS)):
        for name in reversed(PARAMETERS):
            named[f"gradient of block {block}, {name}"] = blocks[block][name]
    return named | {"gradient of the inputs": inputs}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's outputs and gradients, by name, of residual MLP blocks with whole parameters."""
    inputs = _inputs(case, dtype).requires_grad_()
    blocks = [_block(case, block, dtype) for block in range(NUM_BLOCKS)]
    outputs = inputs
    for block in blocks:
        for parameter in block.values():
            parameter.requires_grad_()
        hidden = torch.nn.functional.gelu(outputs @ block["first"] + block["first_bias"])
        outputs = outputs + hidden @ block["second"] + block["second_bias"]
    needed = [inputs, *(parameter for block in blocks for parameter in block.values())]
    gradients = iter(torch.autograd.grad(outputs.square().mean(), needed))
    return _named(
        outputs.detach(),
        next(gradients),
        [{name: next(gradients) for name in block} for block in blocks],
    )


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: outputs, gradients; two all-reduces a block, no other call."""
    activation = ELEMENT_BYTES * case.settings["num_tokens"] * case.settings["width"]
    return [
        laws.same_as_one_process(one_process, case, _own),
        laws.sends({"all_reduce": 2 * NUM_BLOCKS * activation}),
        laws.calls(["all_reduce"] * 2 * NUM_BLOCKS),
    ]

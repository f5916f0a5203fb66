"""The bench of `fsdp_unit`: linear layers that are gathered only while they run."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, backward, normal
from proofbook.runners.judging.comparison import Tensors, first_rows
from proofbook.runners.judging.ranks import JudgedRank

NUM_UNITS = 12
NUM_STEPS = 2  # parameters that a program keeps from the first step are stale in the second
LEARNING_RATE = 0.5
_WIDTHS = (56, 76), (84, 104)


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: two widths that the ranks divide, units, few samples."""
    narrow, wide = (world_size * (draw.randrange(*of) // world_size) for of in _WIDTHS)
    num_samples = draw.randrange(3, 7)  # few, so that parameters decide the peak
    return {"narrow": narrow, "wide": wide, "num_units": NUM_UNITS, "num_samples": num_samples}


def _shapes(case: LabCase) -> list[tuple[int, int]]:
    """Outputs and inputs of each unit; units widen and narrow in turn."""
    narrow, wide = case.settings["narrow"], case.settings["wide"]
    return [(wide, narrow), (narrow, wide)] * (NUM_UNITS // 2)


def _parameters(case: LabCase, dtype: torch.dtype) -> list[Tensor]:
    """One flat tensor for each unit: its weight row by row, then its bias."""
    parameters = []
    for unit, (num_outputs, num_inputs) in enumerate(_shapes(case)):
        size, generator = num_outputs * (num_inputs + 1), case.generator(unit)
        numbers = torch.randn(size, generator=generator, dtype=torch.float64) / num_inputs**0.5
        parameters.append(numbers.to(dtype))
    return parameters


def _samples(case: LabCase, rank: int, step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a rank."""
    shape = 2, case.settings["num_samples"], case.settings["narrow"]
    generator = case.generator(NUM_UNITS, rank, step)
    inputs, targets = normal(shape, generator, dtype)
    return inputs, targets


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, outputs and shards' gradients of two SGD steps by the reader's `sharded_linear`."""
    whole = _parameters(case, torch.float32)
    shards = [flat.chunk(rank.world_size)[rank.rank].clone().requires_grad_() for flat in whole]
    samples = [_samples(case, rank.rank, step, torch.float32) for step in range(NUM_STEPS)]
    # Results are copied into tensors that exist before metering, so they do not count.
    outputs = [torch.zeros_like(inputs) for inputs, _ in samples]
    gradients = [[torch.zeros_like(shard) for shard in shards] for _ in samples]
    with rank.metered({"samples": samples}, trained={"shards": shards}):
        for step, (inputs, targets) in enumerate(samples):
            activations = inputs
            for shard, (num_outputs, _) in zip(shards, _shapes(case), strict=True):
                activations = program.sharded_linear(activations, shard, num_outputs).tanh()
            outputs[step].copy_(activations.detach())
            backward((activations - targets).square().mean())
            for shard, gradient in zip(shards, gradients[step], strict=True):
                if shard.grad is not None:
                    gradient.copy_(shard.grad)
                shard.detach().sub_(gradient, alpha=LEARNING_RATE)
                shard.grad = None
    return _named(outputs, gradients)


def _named(outputs: Sequence[Tensor], gradients: Sequence[Sequence[Tensor]]) -> Tensors:
    """Results step by step, because a grade shows the first difference."""
    named = {}
    for step, (activations, of_units) in enumerate(zip(outputs, gradients, strict=True)):
        named[f"outputs of step {step}"] = activations
        for unit, gradient in enumerate(of_units):
            named[f"gradient of unit {unit} in step {step}"] = gradient
    return named


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's outputs and gradients, by name, of two SGD steps on all samples, undivided."""
    all_outputs, all_gradients = [], []
    flat = [parameters.requires_grad_() for parameters in _parameters(case, dtype)]
    for step in range(NUM_STEPS):
        of_ranks = [_samples(case, rank, step, dtype) for rank in range(case.world_size)]
        outputs, targets = (torch.cat(parts) for parts in zip(*of_ranks, strict=True))
        for parameters, (num_outputs, num_inputs) in zip(flat, _shapes(case), strict=True):
            weight, bias = parameters.split([num_outputs * num_inputs, num_outputs])
            outputs = torch.tanh(outputs @ weight.view(num_outputs, num_inputs).T + bias)
        all_outputs.append(outputs.detach())
        gradients = torch.autograd.grad((outputs - targets).square().mean(), flat)
        all_gradients.append(gradients)
        with torch.no_grad():
            for parameters, gradient in zip(flat, gradients, strict=True):
                parameters.sub_(gradient, alpha=LEARNING_RATE)
    return _named(all_outputs, all_gradients)


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: the training; bytes of two gathers, a reduce-scatter a unit; peak."""
    settings, n = case.settings, case.world_size
    units = [ELEMENT_BYTES * outputs * (inputs + 1) for outputs, inputs in _shapes(case)]
    activation = ELEMENT_BYTES * settings["num_samples"] * settings["wide"]
    gathered = NUM_STEPS * sum(units)
    # Five tensors have the size of a unit: its parameters, their gradient, a flat copy of the
    # gradient, the buffer in which gloo reduces, and one that it frees late. All shards may have
    # gradients. Each unit saves its inputs, and up to four more activations are in use.
    peak = 5 * max(units) + sum(units) / n + (NUM_UNITS + 4) * activation
    return [
        laws.same_as_one_process(one_process, case, first_rows),
        laws.sends({"all_gather": 2 * gathered, "reduce_scatter": gathered}),
        laws.holds_at_most(peak),
    ]
